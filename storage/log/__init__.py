"""One partition's log: loading, recovery, append, read, truncation."""
