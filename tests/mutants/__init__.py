"""Planted bugs that the simulations must find: `python -m tests.mutants`."""
