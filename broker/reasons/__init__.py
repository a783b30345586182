"""Explains why a group lags, rebalances or skips records: facts about a group, and the sentences that follow from them.

    the coordinator's history ─┐
    offsets, members ──────────┼──▶ GroupFacts ──explain──▶ sentences ──▶ `moldau group explain`, the console
    ends of partitions ────────┘

This package sends no requests. The command line and the console gather the facts, each with its own client.
"""
