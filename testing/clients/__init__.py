"""The Kafka clients through which the conveniences of a cluster work: the one that is installed."""
