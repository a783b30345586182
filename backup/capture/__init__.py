"""Captures for tests of consumers: the records of some topics in a window of time, masked, in one file."""
