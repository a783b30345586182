"""From options and origins to tasks: offsets, the snapshot, slices, tasks."""
