"""The log: Kafka's directory of segments, indexes and checkpoints behind a small file interface."""
