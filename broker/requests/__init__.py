"""The APIs that this server speaks: one table, one handler for each."""
