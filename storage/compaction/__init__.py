"""Log compaction: keeping the latest record of each key. What may be cleaned, and the cleaning itself."""
