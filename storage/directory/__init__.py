"""One log.dir: its lock, its partitions, its checkpoints, and the state that the previous process left in it."""
