"""Decoding of the bytes of a slice into Arrow columns."""
