"""Captures: one file with masked records of some topics from a window of time, for tests of consumers."""
