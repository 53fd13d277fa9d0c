"""Fuzzing: random problems and damaged files, from seeds. `make fuzz` runs it."""
