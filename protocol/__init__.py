"""Kafka's wire: messages, frames, record batches, compression and error codes as bytes and values."""
