"""Decisions about topics and new partitions: creation, the placement of replicas, deletion."""
