"""The records of internal topics and of the metadata log, declared in the same way as messages."""
