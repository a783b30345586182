"""One log.dir: its lock, its partitions, its checkpoints, and the files that tell how the previous process ended."""
