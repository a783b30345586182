"""Snapshots of the metadata: files that stand for a beginning of the log."""
