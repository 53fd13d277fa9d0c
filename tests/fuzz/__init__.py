"""Seeded generators of hostile input, which count what becomes of it."""
