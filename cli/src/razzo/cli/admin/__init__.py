"""`razzo admin`: what an operator asks of a running cluster."""
