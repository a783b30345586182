"""The log of one partition: loading, recovery, append, read, truncation."""
