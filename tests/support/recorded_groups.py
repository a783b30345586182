"""Logs that Apache Kafka 4.3.1 wrote with groups of all kinds, killed while all of them had members.

| group | what was in it |
|---|---|
| classic-group | two members, cooperative-sticky, subscribed to orders (4 partitions) |
| consumer-group | three members on orders and payments (3 partitions): a pattern, a static one, one for `range` |
| left-group | a consumer group whose only member has left |
| share-group | two members, subscribed to orders |
| streams-group | one process with two threads: orders, a repartition topic, a count |
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).parent / "recorded"


def groups_log() -> bytes:
    """The log of the only partition of `__consumer_offsets`."""
    return gzip.decompress((RECORDED / "kafka_4_3_1_groups_of_all_kinds.log.gz").read_bytes())


def share_state_log() -> bytes:
    """The log of the only partition of `__share_group_state`."""
    return gzip.decompress((RECORDED / "kafka_4_3_1_share_state.log.gz").read_bytes())
