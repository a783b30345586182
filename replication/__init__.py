"""Partition replicas on a broker: roles, in-sync sets and high watermarks, and the fetches that leaders answer and
followers send.
"""
