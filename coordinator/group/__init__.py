"""The parts that groups of all kinds share: the contract of a group, its requests, records, timers and settings."""
