"""Coordination of groups and transactions by state machines.

A machine returns the records to append and does no I/O.
"""
