"""The options of queries that write to topics."""
