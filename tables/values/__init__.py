"""Values that a schema registry has framed, decoded: JSON, Avro, Protobuf."""
