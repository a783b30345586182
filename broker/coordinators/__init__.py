"""The shell of the coordinators: the log of a partition, loading, timers and replies around their state machines."""
