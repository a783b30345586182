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

OFFSETS: Final = "__consumer_offsets"
SHARE_STATE: Final = "__share_group_state"
TRANSACTIONS: Final = "__transaction_state"
_ROUNDS: Final = {OFFSETS: 0, SHARE_STATE: 0, TRANSACTIONS: 2}


def rounds_of(topics: Iterable[str]) -> list[list[str]]:
    """Return the topics in rounds. The topics of a round are asked for after all topics of the round before."""
    rounds: list[list[str]] = [[], [], []]
    for topic in sorted(topics):
        rounds[_ROUNDS.get(topic, 1)].append(topic)
    return rounds
