"""Decoding framed values in columns of Spark."""
