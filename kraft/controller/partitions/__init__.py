"""Decisions about existing partitions: leaders, in-sync sets, reassignments and log directories."""
