"""A blocking client of Kafka brokers: connections, metadata, offsets, coordinators, an idempotent producer and its
transactions. No object of the client is used by several threads."""
