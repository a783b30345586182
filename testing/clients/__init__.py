"""Kafka clients for the conveniences of a cluster. The client library that is installed is used."""
