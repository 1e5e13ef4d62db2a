"""Razzo storage."""
