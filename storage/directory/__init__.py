"""One log.dir: its lock, its partitions, its checkpoints, and what its previous process left there."""
