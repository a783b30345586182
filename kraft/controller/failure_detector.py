"""Detection of failed brokers before their sessions end: by missing heartbeats and by broken connections.

    connected ── no heartbeat for the longer of `patience_ms` and five heartbeat intervals ──▶ suspected
       │ ▲
    the broker's connection broke, or its address refuses connections
       ▼ │ a heartbeat
    disconnected ── no heartbeat for the longer of `grace_ms` and two heartbeat intervals ──▶ suspected

After a disconnection both waits run at the same time, and the broker is suspected when the first of them ends. The wait
for a heartbeat needs two heartbeats, from which the interval is computed. The broker on the node that led the quorum
before has not sent this controller a heartbeat yet. It is suspected `patience_ms` after the last response of its node.

The controller fences a suspected broker. That is always safe: a broker that lives is unfenced by its next heartbeat. A
broker with a long heartbeat interval, such as Apache Kafka's default of two seconds, is suspected late; its session
may end first.

DIVERGES: Apache Kafka waits for broker.session.timeout.ms and takes no account of connections.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.late_tuple import NamedTuple

GRACE_MS: Final = 500
SILENT_INTERVALS: Final = 5
DISCONNECTED_INTERVALS: Final = 2


class BrokerContact(NamedTuple):
    """What the controller knows of a broker's connection and heartbeats. Times are in ms on the controller's clock."""

    heard_ms: int
    """The time of the last heartbeat. Before the first heartbeat it is the time of the disconnection, or of the last
    response of the broker's node as leader of the quorum."""
    interval_ms: int | None = None
    """The heartbeat interval (ms), computed by `FailureDetector.heartbeat`. It is None before the second heartbeat, and
    0 for a broker whose node led the quorum."""
    disconnected_ms: int | None = None
    """The time at which the broker's connection broke; None if it has not broken since the last heartbeat."""


class FailureDetector:
    """Suspects brokers that have sent no heartbeat for too long.

    If `patience_ms` is 0, it suspects no broker, so only the end of a session fences a broker.
    """

    def __init__(self, patience_ms: int, grace_ms: int = GRACE_MS) -> None:
        self._patience_ms = patience_ms
        self._grace_ms = grace_ms
        self._by_broker: dict[int, BrokerContact] = {}

    def heartbeat(self, broker_id: int, now_ms: int) -> None:
        """Record a heartbeat, and update the broker's heartbeat interval: the time since the previous heartbeat, but at
        least half of the previous interval. If intervals vary, the longest recent one counts.
        """
        before = self._by_broker.get(broker_id)
        interval_ms = None
        if before is not None:
            interval_ms = max(now_ms - before.heard_ms, (before.interval_ms or 0) // 2)
        self._by_broker[broker_id] = BrokerContact(now_ms, interval_ms)

    def note_disconnected(self, broker_id: int, now_ms: int) -> None:
        """Note that the connection of the broker's heartbeats broke, or that its address refuses connections."""
        before = self._by_broker.get(broker_id, BrokerContact(now_ms))
        if before.disconnected_ms is None:
            self._by_broker[broker_id] = before._replace(disconnected_ms=now_ms)

    def note_last_heard(self, broker_id: int, heard_ms: int) -> None:
        """Note that the broker's node led the quorum before this node did, and last responded to this node at
        `heard_ms`.

        The wait of `patience_ms` begins at that time, because the broker may never send a heartbeat to this controller.
        """
        if broker_id not in self._by_broker:
            self._by_broker[broker_id] = BrokerContact(heard_ms, interval_ms=0)

    def forget(self, broker_id: int) -> None:
        """Stop observing a broker, because it is fenced or begins a new incarnation."""
        self._by_broker.pop(broker_id, None)

    def suspected_brokers(self, now_ms: int) -> list[int]:
        """The ids of the brokers that have sent no heartbeat for too long."""
        return sorted(
            broker_id
            for broker_id, contact in self._by_broker.items()
            if (deadline_ms := self._deadline_ms(contact)) is not None and now_ms >= deadline_ms
        )

    def next_deadline_ms(self) -> int | None:
        """The time (ms) at which the next broker will be suspected; None if no broker will be."""
        deadlines = [self._deadline_ms(contact) for contact in self._by_broker.values()]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def _deadline_ms(self, contact: BrokerContact) -> int | None:
        if not self._patience_ms:
            return None
        deadlines: list[int] = []
        if contact.interval_ms is not None:
            deadlines.append(contact.heard_ms + max(self._patience_ms, SILENT_INTERVALS * contact.interval_ms))
        if contact.disconnected_ms is not None:
            wait_ms = DISCONNECTED_INTERVALS * (contact.interval_ms or 0)
            deadlines.append(contact.disconnected_ms + max(self._grace_ms, wait_ms))
        return min(deadlines, default=None)
