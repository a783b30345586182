"""Writing rows to topics: partitions, batches, transactions, and the delivery guarantee of a query."""
