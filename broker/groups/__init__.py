"""The shell of the group coordinator: logs, loading, timers and replies around the shards."""
