"""Kafka's wire protocol: messages, frames, record batches, compression and error codes, between bytes and Python
values."""
