"""Razzo broker."""
