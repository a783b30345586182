"""Consumer groups (KIP-848): the coordinator assigns partitions and reconciles the members one by one."""
