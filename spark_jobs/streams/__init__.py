"""Streaming queries: offsets between triggers, the limits of a trigger, and its tasks."""
