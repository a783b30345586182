"""The coordinator of the groups of one `__consumer_offsets` partition: the shard, its records, its offsets."""
