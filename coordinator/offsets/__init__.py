"""The committed offsets of groups of any kind: stored, read, deleted, expired."""
