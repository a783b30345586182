"""A partition's log in Kafka's format: a directory of segments, indexes and checkpoints. All access to files goes
through the interface `FileSystem`.
"""
