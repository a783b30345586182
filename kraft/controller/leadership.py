"""Who leads a partition after a broker, or one of its log directories, came or went."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kraft.image.cluster import ClusterImage
from kraft.image.metadata_image import MetadataImage
from kraft.image.topics import LEADER_UNCHANGED, NO_LEADER, Partition
from protocol.records.metadata import PartitionChangeRecord


def elect(partition: Partition, isr: tuple[int, ...], may_lead: Callable[[int], bool]) -> int:
    """The first replica, in the order of preference, that is in sync and may lead."""
    return next((replica for replica in partition.replicas if replica in isr and may_lead(replica)), NO_LEADER)


def leaders_of(cluster: ClusterImage, partition: Partition) -> Callable[[int], bool]:
    """Which replicas may lead a partition: those of active brokers, in directories that are online."""

    def may_lead(replica: int) -> bool:
        return cluster.is_active(replica) and cluster.has_online(replica, partition.directory_of(replica))

    return may_lead


def changes_without(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is out: it leads nothing, and stays in an in-sync set only where it is the last member."""
    return _changes_without(image, broker_id, lambda _: True)


def changes_without_directories(
    image: MetadataImage, broker_id: int, lost: Collection[bytes]
) -> Iterator[PartitionChangeRecord]:
    """The same for what the broker has in some of its log directories."""
    return _changes_without(image, broker_id, lambda partition: partition.directory_of(broker_id) in lost)


def _changes_without(
    image: MetadataImage, broker_id: int, is_lost: Callable[[Partition], bool]
) -> Iterator[PartitionChangeRecord]:
    for topic, partition_id, partition in image.topics.partitions():
        if (broker_id not in partition.isr and partition.leader != broker_id) or not is_lost(partition):
            continue
        others = tuple(replica for replica in partition.isr if replica != broker_id)
        leader = LEADER_UNCHANGED
        if partition.leader == broker_id:
            leader = elect(partition, others, leaders_of(image.cluster, partition))
        isr = list(others) if others and others != partition.isr else None
        if isr is not None or leader != LEADER_UNCHANGED:
            yield PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, isr=isr, leader=leader)


def changes_with(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """The broker is in: partitions without a leader, which it has in sync, get one.

    Those that still name the broker itself as leader are of a former incarnation, whose end was not written down to
    the last record; naming it again begins a new leader epoch.
    """
    for topic, partition_id, partition in image.topics.partitions():
        if partition.leader in (NO_LEADER, broker_id) and broker_id in partition.isr:
            leader = elect(partition, partition.isr, _leaders_with(image.cluster, partition, broker_id))
            if leader != partition.leader or leader != NO_LEADER:
                yield PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, leader=leader)


def _leaders_with(cluster: ClusterImage, partition: Partition, broker_id: int) -> Callable[[int], bool]:
    """As `leaders_of`, with a broker that is about to be active."""
    may_lead = leaders_of(cluster, partition)

    def may_lead_soon(replica: int) -> bool:
        is_online = cluster.has_online(replica, partition.directory_of(replica))
        return is_online if replica == broker_id else may_lead(replica)

    return may_lead_soon


def changes_of_leaderless(image: MetadataImage) -> Iterator[PartitionChangeRecord]:
    """Partitions that could have a leader and have none: the former controller died before it had elected them all."""
    for topic, partition_id, partition in image.topics.partitions():
        if partition.leader == NO_LEADER:
            leader = elect(partition, partition.isr, leaders_of(image.cluster, partition))
            if leader != NO_LEADER:
                yield PartitionChangeRecord(partition_id=partition_id, topic_id=topic.id, leader=leader)
