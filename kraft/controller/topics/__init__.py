"""Decisions about topics and new partitions: creation, placement, deletion."""
