"""One segment of a log: a .log file of batches, and the sparse indexes beside it."""
