"""The razzo command."""
