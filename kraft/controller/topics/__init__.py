"""Topics and new partitions: made, placed, deleted."""
