"""A client of brokers: connections, metadata, offsets, coordinators, an idempotent producer and its transactions. Its
calls block, and no object is used by several threads.
"""
