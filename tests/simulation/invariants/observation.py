"""What the invariants look at: every living broker's own objects at one moment, and what was ever seen to be committed.

The oracle learns from leaders: whatever lies below the high watermark of any leader is committed, with its bytes, for
ever. Brokers are never asked; their files are read as they lie in the page cache, which costs no virtual time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.broker.node.node import Node as Broker
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.producers.producer_state import read_transaction_marker
from moldau.storage.segment.segment import Segment
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.cluster import Cluster

PartitionKey = tuple[bytes, int]
"""Topic id and index."""
HEADER_SIZE = 61
FULL_EVERY = 50
HEARD_NS = 20_000_000_000
"""A broker that is paused, on a slow disk, has heard of a failed sync by then."""


class Violation(AssertionError):
    """An invariant does not hold."""


class StoredBatch(NamedTuple):
    """A batch as it lies in a log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    segment_offset: int
    position: int
    size: int
    head: bytes
    is_sound: bool
    is_abort: bool
    """Whether the batch is the marker of an aborted transaction."""

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """Equal wherever the batch is the same."""
        return self.base_offset, self.last_offset, self.leader_epoch, self.crc

    @property
    def is_transactional(self) -> bool:
        return bool(self.head[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)

    @property
    def is_marker(self) -> bool:
        """Whether the batch ends a transaction."""
        return self.producer_id >= 0 and bool(self.head[ATTRIBUTES_POSITION + 1] & CONTROL_BIT)


class LogContent:
    """The batches of one log, read further at every look, and anew from where it was cut."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.verified = 0
        """So many were compared with what is committed."""
        self._sizes: dict[int, int] = {}
        """Of the segments of a compacted log, but the active one."""

    def read(self, disk: SimulatedDisk, log: Log, end_offset: int | None = None) -> None:
        """`end_offset`: what lies beyond it may be anything."""
        if log.config.is_compacted:
            self._forget_cleaned(log)
        last = self.batches[-1].segment_offset if self.batches else -1
        segments, files = self._files(disk, log, last)
        if self.batches and not self._is_there(self.batches[-1], log, files):
            segments, files = self._files(disk, log, -1)
            while self.batches and not self._is_there(self.batches[-1], log, files):
                self.batches.pop()
        self.verified = min(self.verified, len(self.batches))
        first, position = -1, 0
        if self.batches:
            first = self.batches[-1].segment_offset
            position = self.batches[-1].position + self.batches[-1].size
        for base in sorted(files):
            if base >= first:
                start = position if base == first else 0
                self._read_segment(base, files[base], start, segments[base].size, end_offset)

    def _forget_cleaned(self, log: Log) -> None:
        """Read all of a compacted log again if a segment is not what it was."""
        sizes = {each.base_offset: each.size for each in log.segments[:-1]}
        if any(sizes.get(base) != size for base, size in self._sizes.items()):
            self.batches.clear()
        self._sizes = sizes

    @staticmethod
    def _files(disk: SimulatedDisk, log: Log, first: int) -> tuple[dict[int, Segment], dict[int, BytesLike]]:
        segments = {each.base_offset: each for each in log.segments if each.base_offset >= first}
        return segments, {base: disk.peek(each.path(".log")) for base, each in segments.items() if each.size}

    @staticmethod
    def _is_there(batch: StoredBatch, log: Log, files: dict[int, BytesLike]) -> bool:
        data = files.get(batch.segment_offset)
        if data is None or batch.last_offset >= log.end_offset:
            return False
        return bytes(data[batch.position : batch.position + HEADER_SIZE]) == batch.head

    def _read_segment(self, base: int, data: BytesLike, position: int, size: int, end_offset: int | None) -> None:
        next_offset = self.batches[-1].last_offset + 1 if position else base
        while position < size and (end_offset is None or next_offset < end_offset):
            header = parse_header(data, position)
            next_offset = header.next_offset
            self.batches.append(
                StoredBatch(
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    header.crc,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    base,
                    position,
                    header.size,
                    bytes(data[position : position + HEADER_SIZE]),
                    crc_is_valid(data, position, header),
                    _is_abort(data[position : position + header.size], header),
                )
            )
            position += header.size


def _is_abort(batch: BytesLike, header: BatchHeader) -> bool:
    if header.producer_id < 0 or not header.attributes & CONTROL_BIT:
        return False
    marker = read_transaction_marker(bytes(batch))
    return marker is not None and not marker.is_commit


@dataclass(slots=True)
class Replica:
    """One replica of one living broker."""

    node_id: int
    life: int
    broker: Broker
    partition: Partition
    disk: SimulatedDisk
    content: LogContent
    is_registered: bool
    """Its broker is the incarnation that the controller knows: what an in-sync set says of it holds."""

    @property
    def is_compacted(self) -> bool:
        """Whether its batches may be rewritten and removed below the high watermark."""
        return self.partition.log.config.is_compacted

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index} on node {self.node_id}"


@dataclass(slots=True)
class Node:
    id: int
    life: int
    broker: Broker
    disk: SimulatedDisk
    is_losing_metadata: bool = False
    """Pages of its metadata log are gone with a sync that failed, and it need not have heard of that yet."""


@dataclass(slots=True)
class Committed:
    """All that was ever committed of one partition, by base offset."""

    batches: dict[int, StoredBatch] = field(default_factory=dict)
    end_offset: int = 0
    unseen: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that no leader showed: its disk had rotted, and it deleted them before it was looked at again."""

    deleted_end: int = 0
    """A leader deleted everything before it. Who was behind kept what it had of that, committed or not; and a loss of
    power may take the deletion back everywhere."""

    def may_be(self, batch: StoredBatch) -> bool:
        """Whether this batch is the one that was committed there, as far as anybody saw."""
        if batch.last_offset < self.deleted_end:
            return True
        known = self.batches.get(batch.base_offset)
        if known is None:
            return any(start <= batch.base_offset < end for start, end in self.unseen)
        return known.identity == batch.identity


@dataclass(slots=True)
class Observation:
    """One moment. `image` is the newest committed metadata that anybody has."""

    now_ns: int
    nodes: list[Node]
    replicas: dict[PartitionKey, list[Replica]]
    image: MetadataImage
    committed: dict[PartitionKey, Committed]
    flushes: bool
    """Whether every topic is flushed before an acknowledgement."""

    def all_replicas(self) -> Iterator[tuple[PartitionKey, Replica]]:
        for key, replicas in self.replicas.items():
            for replica in replicas:
                yield key, replica

    def assigned(self, key: PartitionKey) -> Assigned | None:
        topic = self.image.topics.by_id.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])


class Observer:
    """Looks again and again at one cluster.

    With `is_brief` it leaves out replicas of which nothing is different that can be told at a glance, but for every
    `FULL_EVERY`th look: most looks see one partition move, and would read them all.
    """

    def __init__(self, cluster: Cluster, *, flushes: bool, is_brief: bool = False) -> None:
        self._cluster = cluster
        self._flushes = flushes
        self._is_brief = is_brief
        self._count = 0
        self._glances: dict[tuple[int, int, PartitionKey], object] = {}
        self._contents: dict[tuple[int, int, PartitionKey], LogContent] = {}
        self._committed: dict[PartitionKey, Committed] = {}
        self._lost_since: dict[tuple[int, int, str], int] = {}
        self._image: MetadataImage | None = None

    @property
    def image(self) -> MetadataImage | None:
        """The newest committed metadata that anybody ever had."""
        return self._image

    def look(self, *, is_full: bool = False) -> Observation | None:
        """None as long as nobody serves."""
        self._count += 1
        is_full = is_full or not self._is_brief or self._count % FULL_EVERY == 0
        nodes = [
            Node(node.id, node.host.lives, node.broker, node.host.disk)
            for node in self._cluster.nodes.values()
            if node.is_up and node.broker is not None and is_started(node.broker)
        ]
        for node in nodes:
            node.is_losing_metadata = self._is_losing(node, node.broker.quorum.opened.log.log)
            image = node.broker.quorum.image
            if self._image is None or image.provenance.end_offset > self._image.provenance.end_offset:
                self._image = image
        if self._image is None:
            return None
        replicas: dict[PartitionKey, list[Replica]] = {}
        for node in nodes:
            known = self._image.cluster.brokers.get(node.id)
            is_registered = known is not None and known.epoch == node.broker.registration.epoch
            for partition in node.broker.replicas:
                if node.disk.is_rotten(partition.log.directory):
                    continue  # it holds what it holds, until that is found and fetched again
                if self._is_losing(node, partition.log):
                    continue
                key = (partition.topic_id, partition.index)
                place = (node.id, node.life, key)
                glance = self._glance(partition, key, is_registered)
                if not is_full and self._glances.get(place) == glance:
                    continue
                self._glances[place] = glance
                content = self._content(node, key, partition.log)
                replica = Replica(node.id, node.life, node.broker, partition, node.disk, content, is_registered)
                replicas.setdefault(key, []).append(replica)
        observation = Observation(
            self._cluster.world.loop.now_ns,
            nodes,
            replicas,
            self._image,
            self._committed,
            self._flushes,
        )
        for key, replica in observation.all_replicas():
            if replica.partition.leadership is not None and replica.partition.log.failure is None:
                self._learn(self._committed.setdefault(key, Committed()), replica)
        return observation

    def _is_losing(self, node: Node, log: Log) -> bool:
        """Whether pages are gone with a sync that failed, and the broker need not know that yet."""
        if log.failure is not None or not node.disk.has_hole(log.directory):
            return False
        now_ns = self._cluster.world.loop.now_ns
        return now_ns < self._lost_since.setdefault((node.id, node.life, log.directory), now_ns) + HEARD_NS

    def _glance(self, partition: Partition, key: PartitionKey, is_registered: bool) -> object:
        """What tells a replica that has moved from one that has not, without reading its log."""
        log, leadership = partition.log, partition.leadership
        committed = self._committed.get(key)
        assert self._image is not None
        return (
            leadership and leadership.in_sync,
            (partition.leader_id, partition.leader_epoch, partition.partition_epoch, partition.isr),
            (partition.high_watermark, log.log_start_offset, log.end_offset, log.synced_end_offset),
            (len(log.segments), log.active.base_offset, log.active.size, log.epochs.latest_epoch, log.failure is None),
            committed and committed.end_offset,
            (self._image.provenance.end_offset, is_registered, id(partition)),
        )

    def _content(self, node: Node, key: PartitionKey, log: Log) -> LogContent:
        content = self._contents.get((node.id, node.life, key))
        if content is None:
            content = self._contents[node.id, node.life, key] = LogContent()
        if log.failure is None:
            content.read(node.disk, log)
        return content

    @staticmethod
    def _learn(committed: Committed, leader: Replica) -> None:
        committed.deleted_end = max(committed.deleted_end, leader.partition.log.log_start_offset)
        high_watermark = leader.partition.high_watermark
        if high_watermark <= committed.end_offset:
            return
        first = high_watermark
        for batch in reversed(leader.content.batches):
            if batch.last_offset < committed.end_offset:
                break
            if batch.last_offset < high_watermark:
                committed.batches.setdefault(batch.base_offset, batch)
                first = batch.base_offset
        if first > committed.end_offset:
            committed.unseen.append((committed.end_offset, first))
        committed.end_offset = high_watermark


def is_started(broker: Broker) -> bool:
    """Whether the parts that are looked at are there."""
    has_loaded = broker.applier.has_loaded or not broker.config.is_broker
    return has_loaded and broker.quorum.is_open
