"""Decoding the bytes of a slice (whole batches of a segment) into Arrow columns."""
