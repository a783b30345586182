"""A partition as its leader and its followers see it: in-sync replicas, high watermark, fetch sessions, delayed operations."""
