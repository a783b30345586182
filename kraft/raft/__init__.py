"""Raft over the metadata log: a state machine without I/O, with one module for each role."""
