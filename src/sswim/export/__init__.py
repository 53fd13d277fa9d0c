"""Fitted models for other runtimes."""
