"""The words every side shares: names, codes, limits, properties, method paths."""
