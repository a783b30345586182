"""The origins of records: sources that list segments of partitions, and open them in a task. They are log directories,
tiered storages and brokers."""
