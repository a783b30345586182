"""Backups of a cluster, in a directory or an object store: its logs, each up to one offset, and its metadata."""
