"""Values that a schema registry has framed, as columns: JSON, Avro, Protobuf."""
