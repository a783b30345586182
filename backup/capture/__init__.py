"""Captures: a window of a cluster's topics in one file, masked, for the tests of its consumers."""
