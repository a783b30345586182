"""Settings that the cluster keeps: read and changed."""
