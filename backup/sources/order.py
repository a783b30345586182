"""The order in which a source is asked for the ends of its logs.

A backup is taken while the cluster works. A log that may refer to other logs is asked for before them: the offsets of
groups and share groups point into topics, so that they lie below the topics' ends. `__transaction_state` is asked for
last: the marker of a transaction is written after the record that lists its partitions, so for every marker in a log
the backup has that record. A running cluster is asked for the end of `__transaction_state` before everything else, too:
a transaction that was decided below this end has all its records in the backup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
_ROUNDS: Final = {OFFSETS_TOPIC: 0, SHARE_STATE_TOPIC: 0, TRANSACTIONS_TOPIC: 2}


def listing_rounds_of(topics: Iterable[str]) -> list[list[str]]:
    """Group topics into rounds. The log ends of one round are read after those of all previous rounds."""
    rounds: list[list[str]] = [[], [], []]
    for topic in sorted(topics):
        rounds[_ROUNDS.get(topic, 1)].append(topic)
    return rounds
