"""The planning of a read, from options and origins to tasks: offsets, the snapshot, slices."""
