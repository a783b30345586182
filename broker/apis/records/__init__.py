"""The APIs of records: produce, fetch, and the offsets of partitions."""
