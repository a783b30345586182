"""The options of a write."""
