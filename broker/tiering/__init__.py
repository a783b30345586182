"""Tiered storage in the broker: copies segments to remote storage, reads them, deletes them, and keeps their
metadata.
"""
