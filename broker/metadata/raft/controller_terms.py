"""Begins a term of the controller when this node becomes leader of the metadata quorum, and ends it when it resigns.

`FormerLeader` remembers the former leader of the quorum, and the time of its last response to this node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.broker.metadata.active_controller import ActiveController
from moldau.broker.metadata.metadata_log import DiskFull
from moldau.broker.metadata.publisher import CommittedMetadata, MetadataPublisher
from moldau.broker.metadata.raft.log_writer import Feed, MetadataLogWriter
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.partition_index import IndexedTopics, PartitionIndex
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.image.topics import TopicsImage
from moldau.kraft.raft import events
from moldau.kraft.raft.raft import Raft
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import RegisterControllerRecord

log = logging.getLogger("moldau.quorum")

INDEXED_ON_LOOP_MAX: Final = 500
"""The largest number of partitions that a new controller indexes on the event loop, which takes 2 ms. More are indexed
in an executor thread.
"""
NO_NODE = -1


class ControllerTerms:
    """The controllers of this node. Each term has a new controller, made from the metadata at the end of the log."""

    def __init__(
        self,
        environment: Environment,
        tasks: Tasks,
        raft: Raft,
        settings: ControllerSettings,
        registration: RegisterControllerRecord,
        bootstrap_records: Callable[[], list[object]],
        committed: CommittedMetadata,
        publisher: MetadataPublisher,
        writer: MetadataLogWriter,
        former_leader: FormerLeader,
        feed: Feed,
        leader_changed: Callable[[], None],
        cannot_lead: Callable[[DiskFull], None],
    ) -> None:
        """`registration`: the record by which this controller registers itself when it leads.

        `bootstrap_records`: reads the first records of a cluster from the disk, for a log without metadata.
        `leader_changed`: called when the leader has changed, so that requests to an earlier controller get no response
        any more.
        """
        self._environment = environment
        self._tasks = tasks
        self._raft = raft
        self._settings = settings
        self._registration = registration
        self._bootstrap_records = bootstrap_records
        self._committed = committed
        self._publisher = publisher
        self._writer = writer
        self._former_leader = former_leader
        self._feed = feed
        self._leader_changed = leader_changed
        self._cannot_lead = cannot_lead
        self._active: ActiveController | None = None

    @property
    def active(self) -> ActiveController | None:
        """The controller of the current term; None if this node does not lead."""
        return self._active

    def note_disconnected(self, broker_id: int) -> None:
        """Tell the controller that a broker may have failed: a connection to or from it broke, or its address refuses
        connections.
        """
        if self._active is not None:
            self._active.note_disconnected(broker_id)

    def lead(self, epoch: int) -> None:
        """Begin a term as leader of an epoch. If there are many partitions, an executor thread indexes them first.
        Until the index is made, brokers' requests to the controller are refused and tried again.
        """
        image = self._committed.nearest_image
        if image.topics.has_more_partitions_than(INDEXED_ON_LOOP_MAX):
            self._tasks.spawn(self._lead_indexed(epoch, image.topics), "index of the partitions")
        else:
            self._lead(epoch, None)

    def follow(self, epoch: int, leader_id: int) -> None:
        """End the term if this node led. From now on this node follows `leader_id` (-1 if the epoch has no known
        leader).
        """
        if self._active is not None:
            log.info("node %d has resigned as leader of the metadata quorum, epoch %d", self._raft.node_id, epoch)
            self._active.resign()
            self._active = None
            self._committed.end_term()
        elif leader_id >= 0:
            log.info("node %d leads the metadata quorum in epoch %d", leader_id, epoch)
        if leader_id >= 0:
            self._former_leader.note_leader(leader_id)
        self._leader_changed()

    async def _lead_indexed(self, epoch: int, topics: TopicsImage) -> None:
        index = await self._environment.offload(lambda: PartitionIndex(topics))
        if self._raft.is_leader and self._raft.epoch == epoch:  # The term may have ended in the meantime.
            self._lead(epoch, IndexedTopics(topics, index))

    def _lead(self, epoch: int, indexed: IndexedTopics | None) -> None:
        environment = self._environment
        base = self._committed.begin_term()
        bootstrap = self._bootstrap_records() if not base.image.features.levels else []
        index = None if indexed is None else indexed.update_to(base.image.topics)
        controller = Controller(base, self._settings, environment.monotonic_ms(), index)
        self._active = ActiveController(
            controller, environment, self._publisher, self._writer.append, self._raise_version
        )
        self._leader_changed()
        log.info(
            "node %d leads the metadata quorum in epoch %d, from offset %d",
            self._raft.node_id,
            epoch,
            base.image.provenance.end_offset,
        )
        self._active.begin(
            controller.activate(bootstrap, self._registration),
            lambda: self._cannot_lead(DiskFull("the disk of the metadata log is full")),
        )
        self._watch_former_leader(self._active)

    def _watch_former_leader(self, active: ActiveController) -> None:
        """Tell the controller about the node that led the quorum before: when it last responded, or that its connection
        broke. Unless it resigned cleanly, that node sent nothing for so long that it was replaced.
        """
        contact = self._former_leader.take_contact()
        if contact is None:
            return
        if contact.heard_ms is None:
            active.note_disconnected(contact.node_id)
        else:
            active.note_last_heard(contact.node_id, contact.heard_ms)

    def _raise_version(self, version: int) -> None:
        self._feed(events.RaiseVersion(self._raft.epoch, version))


class LastContact(NamedTuple):
    """The former leader of the quorum, and the time of its last response."""

    node_id: int
    heard_ms: int | None
    """The time (ms, monotonic clock) of the former leader's last response; None if its connection has broken since."""


class FormerLeader:
    """Remembers the former leader of the quorum, so that a new controller can fence the broker on that node before the
    broker's session ends.

    A new controller has received no heartbeat yet. All that its node knows of the former leader is the time of the last
    response.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._node_id = NO_NODE
        self._heard_ms: int | None = None

    @property
    def node_id(self) -> int:
        """The id of the former leader; -1 if no other node has led since this one did."""
        return self._node_id

    def note_leader(self, node_id: int) -> None:
        """Note that this node follows the leader `node_id` from now on."""
        self._node_id = node_id
        self.note_answer()

    def note_answer(self) -> None:
        """Note the time at which the leader answered a request of this node."""
        self._heard_ms = self._monotonic_ms()

    def note_disconnected(self) -> None:
        """Note that the connection to the leader broke, or that its address refuses connections."""
        self._heard_ms = None

    def take_contact(self) -> LastContact | None:
        """Return the former leader, and forget it; None if there is none."""
        if self._node_id == NO_NODE:
            return None
        contact, self._node_id = LastContact(self._node_id, self._heard_ms), NO_NODE
        return contact
