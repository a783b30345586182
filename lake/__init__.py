"""A topic as a table of Apache Iceberg, kept up to date from segments by one process, without Spark and brokers."""
