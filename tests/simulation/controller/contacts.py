"""When each broker was last heard from in this term, by heartbeats of its registered incarnation alone.

A broker that is not fenced was heard from within its session, whatever else arrives in its name. One whose connection
broke is fenced sooner, if the controller hurries; one that was heard from in time is not fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from moldau.kraft.controller.failure_detector import DISCONNECTED_INTERVALS, GRACE_MS
from tests.simulation.invariants.observation import Violation


@dataclass(slots=True)
class Contact:
    """What is to be known of one broker: its registration counts as a contact, and is no beat."""

    contact_ms: int
    beat_ms: int | None = None
    pace_ms: int = 0
    """Between its beats; of a pace that changes the slower one, for a while."""
    lost_ms: int | None = None


class Contacts:
    """`hurries`: the controller does not wait for the end of a session if a broker seems gone before."""

    def __init__(self, session_ms: int, *, hurries: bool) -> None:
        self._session_ms = session_ms
        self._hurries = hurries
        self._by_broker: dict[int, Contact] = {}

    def registered(self, broker_id: int, now_ms: int) -> None:
        self._by_broker[broker_id] = Contact(now_ms)

    def fenced(self, broker_id: int) -> None:
        """What was known of its pace is forgotten."""
        self._by_broker[broker_id] = Contact(self._by_broker[broker_id].contact_ms)

    def heard(self, broker_id: int, now_ms: int) -> None:
        known = self._by_broker[broker_id]
        if known.beat_ms is not None:
            known.pace_ms = max(now_ms - known.beat_ms, known.pace_ms // 2)
        known.contact_ms = known.beat_ms = now_ms
        known.lost_ms = None

    def lost(self, broker_id: int, now_ms: int) -> None:
        """Its connection broke."""
        known = self._by_broker.get(broker_id)
        if known is not None and known.lost_ms is None:
            known.lost_ms = now_ms

    def begin_anew(self, brokers: Iterable[int], now_ms: int) -> None:
        """A new controller gives a whole session to everybody."""
        self._by_broker = {broker_id: Contact(now_ms) for broker_id in brokers}

    def check(self, before: Set[int], after: Set[int], now_ms: int) -> None:
        """`before`, `after`: the brokers that were not fenced before the time was looked at, and after that."""
        for broker_id in sorted(after):
            known = self._by_broker[broker_id]
            silent_ms = now_ms - known.contact_ms
            if silent_ms >= self._session_ms:
                raise Violation(f"broker {broker_id} is silent for {silent_ms} ms, and not fenced")
            grace_ms = max(GRACE_MS, DISCONNECTED_INTERVALS * known.pace_ms)
            if self._hurries and known.lost_ms is not None and now_ms >= known.lost_ms + grace_ms:
                raise Violation(f"broker {broker_id} seems gone for {now_ms - known.lost_ms} ms, and is not fenced")
        for broker_id in sorted(before - after):
            silent_ms = now_ms - self._by_broker[broker_id].contact_ms
            if silent_ms < self._session_ms and not self._hurries:
                raise Violation(f"broker {broker_id} is fenced after {silent_ms} ms of silence")
