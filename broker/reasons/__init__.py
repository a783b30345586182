"""Why a group lags, rebalances or skips: facts about a group, and the sentences that follow from them.

    the coordinator's history ─┐
    offsets, members ──────────┼──▶ GroupFacts ──explain──▶ sentences ──▶ `moldau group explain`, the console
    ends of partitions ────────┘

Nothing here asks a broker: the command line and the console gather the facts, each with its own client.
"""
