"""What becomes of partitions that exist: leaders, in-sync sets, replicas on the move, log directories."""
