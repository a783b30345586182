"""Tiered storage in the broker: what copies segments away, reads them, and keeps their metadata."""
