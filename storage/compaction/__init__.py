"""Log compaction, which keeps the latest record of each key: the choice of what to clean, and the cleaning."""
