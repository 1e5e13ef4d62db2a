"""Razzo runtime."""
