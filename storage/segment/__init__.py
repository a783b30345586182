"""One segment of a log: batches back to back, and the sparse indexes beside them."""
