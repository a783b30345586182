"""From the bytes of a slice to Arrow columns."""
