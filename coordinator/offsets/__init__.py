"""The committed offsets of groups of any kind: storage, reads, deletion, expiry."""
