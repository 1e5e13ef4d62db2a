"""Razzo nameserver."""
