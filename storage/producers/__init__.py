"""The producer state of a log."""
