"""Builds the compiled hot path and the wheels. A wheel does not contain this package."""
