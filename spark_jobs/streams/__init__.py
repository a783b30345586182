"""Streaming queries: offsets between triggers, how much a trigger reads, and its tasks."""
