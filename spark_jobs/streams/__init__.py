"""Streaming queries: their offsets between triggers, the limits of a trigger, and the tasks of a trigger."""
