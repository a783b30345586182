"""Connections: framing, pipelining, the order of replies, the memory of requests and replies, and channels to other
nodes.
"""
