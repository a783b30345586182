"""What must hold of transactions once everything has ended: none torn, none stuck, every copy there once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.support.history import Key, Reading, Send, Told, Value

SHOWN: Final = 5
STUCK_PATIENCE_S: Final = 30.0


def torn(transactions: Iterable[Sequence[Send]], final: Iterable[Reading]) -> list[str]:
    """Transactions of which some records were read and others not; what was told of them is judged by the history."""
    read = {value for reading in final for _, value in reading.records}
    problems = []
    for transaction in transactions:
        seen = sum(sent.value in read for sent in transaction)
        if seen not in (0, len(transaction)):
            problems.append(f"torn: {seen} of {len(transaction)} records beside {transaction[0].value}")
    return problems


def miscopied(sources: Iterable[Reading], copies: Iterable[Reading]) -> list[str]:
    """Records of a reading that do not stand in the copies exactly once, and copies of nothing."""
    wanted = {value for reading in sources for _, value in reading.records}
    found: Counter[Value] = Counter(value for reading in copies for _, value in reading.records)
    missing = [str(value) for value in wanted if value not in found]
    doubled = [str(value) for value, count in found.items() if count > 1]
    foreign = [str(value) for value in found if value not in wanted]
    named = (("never", missing), ("more than once", doubled), ("though never committed", foreign))
    return [f"copied {how}: {len(which)} records, {sorted(which)[:SHOWN]}" for how, which in named if which]


def outcomes(transactions: Iterable[Sequence[Send]]) -> Counter[Told]:
    """How many transactions ended how, as their clients were told."""
    return Counter(transaction[0].told for transaction in transactions)


def stuck(bootstrap: str, keys: Sequence[Key]) -> list[str]:
    """Partitions whose last stable offset does not come to their high watermark though no transaction is under way."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    deadline = time.monotonic() + STUCK_PATIENCE_S
    while True:
        stable = _ends(admin, keys, IsolationLevel.READ_COMMITTED)
        ends = _ends(admin, keys, IsolationLevel.READ_UNCOMMITTED)
        behind = [key for key in keys if stable[key] != ends[key]]
        if not behind or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return [f"stuck: last stable offset {stable[key]} of {ends[key]} in {key[0]}-{key[1]}" for key in behind]


def _ends(admin: AdminClient, keys: Sequence[Key], isolation: IsolationLevel) -> dict[Key, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(*key): latest for key in keys}
    futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=30)
    return {(asked.topic, asked.partition): future.result().offset for asked, future in futures.items()}
