"""A client of brokers: connections, metadata, offsets, coordinators. Its calls block, and no object is used by several
threads.
"""
