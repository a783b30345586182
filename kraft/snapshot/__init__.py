"""Snapshots of the metadata: files that replace the part of the log before an offset."""
