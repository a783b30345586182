"""The records of internal topics and of the metadata log, declared like messages."""
