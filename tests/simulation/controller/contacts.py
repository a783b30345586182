"""When each broker was last heard from in this term, by heartbeats of its registered incarnation alone.

A broker that is not fenced was heard from within its session, whatever else arrives in its name. One whose connection
broke is fenced sooner, where the controller hurries; one that was heard from in time is not fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from kraft.controller.silence import GRACE_MS, LOST_BEATS
from kraft.image.cluster import Broker
from tests.simulation.invariants.observation import Violation


class Contacts:
    """`hurries`: the controller does not wait for the end of a session where a broker seems gone before."""

    def __init__(self, session_ms: int, *, hurries: bool) -> None:
        self._session_ms = session_ms
        self._hurries = hurries
        self._heard_ms: dict[int, int] = {}
        self._lost_ms: dict[int, int] = {}
        self._gap_ms_max: dict[int, int] = {}
        """Between two contacts: at least the pace that the controller knows."""

    def heard(self, broker_id: int, now_ms: int) -> None:
        gap_ms = now_ms - self._heard_ms.get(broker_id, now_ms)
        self._gap_ms_max[broker_id] = max(gap_ms, self._gap_ms_max.get(broker_id, 0))
        self._heard_ms[broker_id] = now_ms
        self._lost_ms.pop(broker_id, None)

    def lost(self, broker_id: int, now_ms: int) -> None:
        """Its connection broke."""
        self._lost_ms.setdefault(broker_id, now_ms)

    def begin_anew(self, brokers: Mapping[int, Broker], now_ms: int) -> None:
        """A new controller gives a whole session to everybody."""
        self._heard_ms = dict.fromkeys(brokers, now_ms)
        self._lost_ms = {}

    def check(self, before: Set[int], after: Set[int], now_ms: int) -> None:
        """`before`, `after`: the brokers that were not fenced before the time was looked at, and after that."""
        for broker_id in sorted(after):
            silent_ms = now_ms - self._heard_ms[broker_id]
            if silent_ms >= self._session_ms:
                raise Violation(f"broker {broker_id} is silent for {silent_ms} ms, and not fenced")
            lost_ms = self._lost_ms.get(broker_id)
            grace_ms = max(GRACE_MS, LOST_BEATS * self._gap_ms_max.get(broker_id, 0))
            if self._hurries and lost_ms is not None and now_ms >= lost_ms + grace_ms:
                raise Violation(f"broker {broker_id} seems gone for {now_ms - lost_ms} ms, and is not fenced")
        self._check_fenced(sorted(before - after), now_ms)

    def _check_fenced(self, fenced: Iterable[int], now_ms: int) -> None:
        for broker_id in fenced:
            silent_ms = now_ms - self._heard_ms[broker_id]
            if silent_ms < self._session_ms and not self._hurries:
                raise Violation(f"broker {broker_id} is fenced after {silent_ms} ms of silence")
