"""The origins of records: each lists segments of partitions, and opens them in a task."""
