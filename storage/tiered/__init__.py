"""Tiered storage: segments in remote storage, the metadata that lists them, and how they are read."""
