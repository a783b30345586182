"""The metadata of the cluster as an immutable value, and the changes that records make to it."""
