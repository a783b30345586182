"""Tiered storage in the broker: copying segments, reading them, and keeping their metadata."""
