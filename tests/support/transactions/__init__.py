"""Clients of transactions for a simulated cluster, and their records of the transactions."""
