"""Committed offsets of groups: commit, fetch, deletion, expiry."""
