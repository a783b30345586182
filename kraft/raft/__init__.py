"""Raft over the metadata log: a machine without I/O, one file for each role."""
