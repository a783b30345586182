"""Decoding values that a schema registry has framed: JSON, Avro and Protobuf."""
