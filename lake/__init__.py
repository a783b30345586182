"""A topic as an Apache Iceberg table: one process keeps the table up to date from the topic's segments, without Spark
and brokers."""
