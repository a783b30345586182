"""The log: Kafka's directory of segments, indexes and checkpoints over a narrow file port."""
