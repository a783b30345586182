"""Tiered storage: segments in remote storage, the records that say which are there, and how they are read."""
