"""The shell of the coordinators: their logs, loading, timers and replies."""
