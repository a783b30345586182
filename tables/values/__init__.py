"""Decoding of values that a schema registry has framed: JSON, Avro, Protobuf."""
