"""Backups of a cluster: its logs up to one vector of offsets, its metadata, in a directory or an object store."""
