"""Framed values as columns of Spark."""
