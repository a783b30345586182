"""Clients of transactions for a simulated cluster, and what they know of their transactions."""
