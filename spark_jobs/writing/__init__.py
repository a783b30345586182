"""Writing rows to topics: partitions, batches, transactions, and the promise that a query makes."""
