"""The records of internal topics and of the metadata log, declared as the messages are."""
