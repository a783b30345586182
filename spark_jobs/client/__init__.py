"""A client of brokers: connections, metadata, offsets, coordinators. Synchronous: a task does one thing at a time."""
