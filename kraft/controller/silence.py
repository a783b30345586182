"""Brokers that fell silent, noticed sooner than by their session: theirs is a pace, and a connection that can break.

    beats at a pace, or led the quorum before ── silent for `patience_ms`, or for five beats ──▶ to be fenced
          │ ▲
     its connection broke, or nobody listens there any more
          ▼ │ a beat
        lost ── silent for `grace_ms` more, or for two beats of its own ──▶ to be fenced

A broker that beats seldom, as Apache Kafka's do, is not hurried: its own session ends it. To fence is always safe: a
broker that lives is unfenced by its next beat.

DIVERGES: Apache Kafka waits for broker.session.timeout.ms whatever else it could know.
"""

from __future__ import annotations

from typing import Final, NamedTuple

GRACE_MS: Final = 500
SILENT_BEATS: Final = 5
LOST_BEATS: Final = 2


class Contact(NamedTuple):
    """What is known of one broker."""

    heard_ms: int
    pace_ms: int | None = None
    """Between its beats; None before the second."""
    lost_ms: int | None = None
    """Since when it seems gone; None where it does not."""


class Silences:
    """`patience_ms` of 0: nobody is fenced before the end of the session."""

    def __init__(self, patience_ms: int, grace_ms: int = GRACE_MS) -> None:
        self._patience_ms = patience_ms
        self._grace_ms = grace_ms
        self._by_broker: dict[int, Contact] = {}

    def heard(self, broker_id: int, now_ms: int) -> None:
        """Of a pace that changes the slower one counts, for a while."""
        before = self._by_broker.get(broker_id)
        pace_ms = None
        if before is not None:
            pace_ms = max(now_ms - before.heard_ms, (before.pace_ms or 0) // 2)
        self._by_broker[broker_id] = Contact(now_ms, pace_ms)

    def lost(self, broker_id: int, now_ms: int) -> None:
        """The connection of its beats broke, or it is known otherwise that it may be gone."""
        before = self._by_broker.get(broker_id, Contact(now_ms))
        if before.lost_ms is None:
            self._by_broker[broker_id] = before._replace(lost_ms=now_ms)

    def silent_since(self, broker_id: int, heard_ms: int) -> None:
        """It was heard from at that time, by other means than beats; of these there may never be one."""
        if broker_id not in self._by_broker:
            self._by_broker[broker_id] = Contact(heard_ms, pace_ms=0)

    def forget(self, broker_id: int) -> None:
        self._by_broker.pop(broker_id, None)

    def expired(self, now_ms: int) -> list[int]:
        return sorted(
            broker_id
            for broker_id, contact in self._by_broker.items()
            if (deadline_ms := self._deadline_ms(contact)) is not None and now_ms >= deadline_ms
        )

    def next_deadline_ms(self) -> int | None:
        deadlines = [self._deadline_ms(contact) for contact in self._by_broker.values()]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def _deadline_ms(self, contact: Contact) -> int | None:
        if not self._patience_ms:
            return None
        deadlines: list[int] = []
        if contact.pace_ms is not None:
            deadlines.append(contact.heard_ms + max(self._patience_ms, SILENT_BEATS * contact.pace_ms))
        if contact.lost_ms is not None:
            deadlines.append(contact.lost_ms + max(self._grace_ms, LOST_BEATS * (contact.pace_ms or 0)))
        return min(deadlines, default=None)
