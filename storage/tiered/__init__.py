"""Tiered storage: segments in remote storage, the records that list them, and how they are read."""
