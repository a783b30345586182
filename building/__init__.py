"""Builds the extension modules of the hot path, and the wheels. A wheel does not contain this package."""
