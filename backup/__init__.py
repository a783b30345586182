"""Backups of a cluster: its metadata, and the log of each partition up to some offset, in a directory or an object
store.
"""
