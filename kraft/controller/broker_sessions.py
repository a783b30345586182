"""The sessions of brokers: when each broker sent its last heartbeat, and what the heartbeats reported."""

from __future__ import annotations

from moldau.kraft.image.cluster import Broker, ClusterImage
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.late_tuple import NamedTuple


class BrokerSession(NamedTuple):
    """What the controller knows of a broker from its heartbeats. It is lost at the end of the controller's term."""

    epoch: int
    last_contact_ms: int
    has_contacted_controller: bool
    """Whether the broker has registered with, or sent a heartbeat to, this controller. Otherwise it is known from the
    log alone, and may have failed.
    """
    metadata_offset: int = -1
    """The last offset of the metadata log that the broker has read."""
    shutdown_offset: int = -1
    """The end offset of the metadata log when the broker had handed over all partitions; -1 before that."""


class BrokerSessions:
    """The sessions of brokers: one entry for each broker that is not fenced."""

    def __init__(self, image: MetadataImage, timeout_ms: int, now_ms: int) -> None:
        """Begin a session for every unfenced broker of the image. Each broker has a whole session timeout (ms) to send
        its first heartbeat to this controller."""
        self.timeout_ms = timeout_ms
        self._by_broker = {
            broker.id: BrokerSession(broker.epoch, now_ms, has_contacted_controller=False)
            for broker in image.cluster.brokers.values()
            if not broker.fenced
        }

    def note_heartbeat(self, broker_id: int, epoch: int, now_ms: int, metadata_offset: int = -1) -> None:
        before = self._by_broker.get(broker_id)
        shutdown_offset = -1 if before is None or before.epoch != epoch else before.shutdown_offset
        self._by_broker[broker_id] = BrokerSession(epoch, now_ms, True, metadata_offset, shutdown_offset)

    def note_shutdown(self, broker_id: int, end_offset: int) -> None:
        """Record that a broker has handed over its partitions. It may exit when the other brokers have read the
        metadata log up to `end_offset`. A later call does not change the offset.
        """
        session = self._by_broker.get(broker_id)
        if session is not None and session.shutdown_offset < 0:
            self._by_broker[broker_id] = session._replace(shutdown_offset=end_offset)

    def is_shutdown_known(self, broker_id: int, cluster: ClusterImage) -> bool:
        """Whether every other active broker knows the new leaders of the partitions of `broker_id`, a broker in
        controlled shutdown. A broker knows them once it has read the metadata log up to the offset of `note_shutdown`.
        """
        session = self._by_broker.get(broker_id)
        needed = -1 if session is None else session.shutdown_offset
        return all(
            other.metadata_offset + 1 >= needed
            for other_id, other in self._by_broker.items()
            if other_id != broker_id and cluster.is_active(other_id)
        )

    def forget(self, broker_id: int) -> None:
        self._by_broker.pop(broker_id, None)

    def is_alive(self, broker: Broker | None, now_ms: int) -> bool:
        """Whether this controller has received the registration or a heartbeat of the broker's present incarnation
        within the session timeout.

        DIVERGES: Apache Kafka counts a broker that it knows from the log alone as alive for a session, so that a single
        node that was killed cannot register again for nine seconds.
        """
        session = None if broker is None else self._by_broker.get(broker.id)
        return (
            broker is not None
            and session is not None
            and session.has_contacted_controller
            and session.epoch == broker.epoch
            and now_ms < session.last_contact_ms + self.timeout_ms
        )

    def expired_brokers(self, now_ms: int) -> list[int]:
        return sorted(
            broker_id
            for broker_id, session in self._by_broker.items()
            if now_ms >= session.last_contact_ms + self.timeout_ms
        )

    def next_deadline_ms(self) -> int | None:
        contacts = [session.last_contact_ms for session in self._by_broker.values()]
        return min(contacts) + self.timeout_ms if contacts else None
