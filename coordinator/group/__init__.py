"""What groups of all kinds share: the contract of a group, its requests, its records, its timers and settings."""
