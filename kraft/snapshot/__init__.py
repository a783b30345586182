"""Snapshots of the metadata: files that replace the part of the metadata log before an offset."""
