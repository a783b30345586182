"""Who leads a partition after a broker came or went."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kraft.image.metadata_image import MetadataImage
from kraft.image.topics import LEADER_UNCHANGED, NO_LEADER, Partition
from protocol.records.metadata import PartitionChangeRecord


def elect(partition: Partition, isr: tuple[int, ...], is_active: Callable[[int], bool]) -> int:
    """The first replica, in the order of preference, that is in sync and may lead."""
    return next((replica for replica in partition.replicas if replica in isr and is_active(replica)), NO_LEADER)


def changes_without(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is out: it leads nothing, and stays in an in-sync set only where it is the last member."""

    def is_active(replica: int) -> bool:
        return replica != broker_id and image.cluster.is_active(replica)

    for topic, partition_id, partition in image.topics.partitions():
        if broker_id not in partition.isr and partition.leader != broker_id:
            continue
        others = tuple(replica for replica in partition.isr if replica != broker_id)
        leader = LEADER_UNCHANGED
        if partition.leader == broker_id:
            leader = elect(partition, others, is_active)
        isr = list(others) if others and others != partition.isr else None
        if isr is not None or leader != LEADER_UNCHANGED:
            yield PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, isr=isr, leader=leader)


def changes_with(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is in: partitions without a leader, which it has in sync, get one.

    Those that still name the broker itself as leader are of a former incarnation, whose end was not written down to
    the last record; naming it again begins a new leader epoch.
    """

    def is_active(replica: int) -> bool:
        return replica == broker_id or image.cluster.is_active(replica)

    for topic, partition_id, partition in image.topics.partitions():
        if partition.leader in (NO_LEADER, broker_id) and broker_id in partition.isr:
            leader = elect(partition, partition.isr, is_active)
            yield PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, leader=leader)


def changes_of_leaderless(image: MetadataImage) -> Iterator[PartitionChangeRecord]:
    """Partitions that could have a leader and have none: the former controller died before it had elected them all."""
    for topic, partition_id, partition in image.topics.partitions():
        if partition.leader == NO_LEADER:
            leader = elect(partition, partition.isr, image.cluster.is_active)
            if leader != NO_LEADER:
                yield PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, leader=leader)
