"""Writing rows to topics: the records of rows, the commit of a query's transactions, and the log of
these transactions."""
