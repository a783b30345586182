"""Where records are: each origin lists segments of partitions, and opens them in a task."""
