"""The options of a read, and their parsing."""
