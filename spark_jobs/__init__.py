"""Spark reads Kafka segments directly: a data source and the jobs built on it."""
