"""The share partitions that this broker leads: their state machines, their state at the share coordinator, and the
locks of acquired records.
"""
