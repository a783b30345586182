"""Connections: framing, pipelining, the order of replies, memory of requests and replies, channels to peers."""
