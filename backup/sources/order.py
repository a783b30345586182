"""The order in which a backup reads the ends of the logs.

A backup is taken while the cluster works, so the ends are read one after another. The end of a log that refers to other
logs is read before the ends of those. So the committed offsets in `__consumer_offsets` lie below the ends of the
topics. The end of `__transaction_state` is read last. The coordinator writes the record with a transaction's partitions
before the markers, so the backup has this record for every marker in a log. In a running cluster the end of
`__transaction_state` is also read before all others. The backup then has all records of every transaction that was
decided below this first end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
_ROUNDS: Final = {OFFSETS_TOPIC: 0, SHARE_STATE_TOPIC: 0, TRANSACTIONS_TOPIC: 2}


def listing_rounds_of(topics: Iterable[str]) -> list[list[str]]:
    """Group topics into rounds. The log ends of the topics in one round are read after those of all previous rounds."""
    rounds: list[list[str]] = [[], [], []]
    for topic in sorted(topics):
        rounds[_ROUNDS.get(topic, 1)].append(topic)
    return rounds
