"""Planning a read, from options and sources of segments to tasks: ranges of offsets, snapshots, slices."""
