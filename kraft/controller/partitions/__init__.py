"""Decisions about existing partitions: leaders, in-sync sets, reassignments, log directories."""
