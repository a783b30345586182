"""A broker that leaves: which replicas it moves to which brokers."""

from __future__ import annotations

from moldau.broker.metadata.departure import (
    MOVES_IN_PROGRESS_MAX,
    BrokerReplicas,
    planned_moves,
    replicas_of_broker,
    target_of,
)
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage, Provenance
from moldau.kraft.image.topics import PartitionRegistration
from moldau.protocol.records.metadata import PartitionRecord, TopicRecord

LEAVER = 3


def image(*partitions: list[int], removing: list[int] | None = None, removing_count: int = 1) -> MetadataImage:
    """A topic with these replicas; `removing`: those that each of the first partitions loses."""
    delta = MetadataDelta(MetadataImage())
    delta.replay(TopicRecord(name="orders", topic_id=bytes(15) + b"\1"))
    for index, replicas in enumerate(partitions):
        delta.replay(
            PartitionRecord(
                partition_id=index,
                topic_id=bytes(15) + b"\1",
                replicas=replicas,
                isr=replicas,
                removing_replicas=removing if removing and index < removing_count else [],
                adding_replicas=[],
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * len(replicas),
            )
        )
    return delta.apply(Provenance())


def of(found: MetadataImage) -> BrokerReplicas:
    return [*replicas_of_broker(found, LEAVER)][-1]


def moved(found: MetadataImage, heirs: list[int], in_progress_max: int = MOVES_IN_PROGRESS_MAX) -> dict[int, list[int]]:
    return {index: target for _, index, target in planned_moves(of(found), LEAVER, heirs, in_progress_max)}


def test_each_replica_goes_to_the_heir_that_has_the_fewest_and_keeps_its_place() -> None:
    found = image([3, 11], [12, 3], [1, 11], [3, 12], [2, 12])
    assert moved(found, [1, 2]) == {0: [1, 11], 1: [12, 2], 3: [1, 12]}


def test_only_so_many_move_at_a_time_and_those_under_way_are_counted() -> None:
    found = image([1, 3], [3], [3], removing=[3])
    assert (of(found).moving, of(found).count) == (1, 3)
    assert moved(found, [1], in_progress_max=2) == {1: [1]}


def test_no_move_begins_while_more_partitions_move_than_may() -> None:
    moving = MOVES_IN_PROGRESS_MAX + 5
    found = image(*[[1, 3]] * moving, *[[3]] * 100, removing=[3], removing_count=moving)
    assert (of(found).moving, of(found).count) == (moving, moving + 100)
    assert moved(found, [1]) == {}


def test_an_heir_that_has_a_replica_gets_no_second_one() -> None:
    assert moved(image([3, 1]), [1, 2]) == {0: [2, 1]}
    assert moved(image([3, 1]), [1]) == {0: [1]}, "one replica fewer"
    assert moved(image([3]), []) == {}, "the only replica waits until an heir serves"


def test_a_partition_without_the_broker_is_left_alone() -> None:
    assert of(image([1, 2], [2])).count == 0


def test_the_target_of_a_reassignment_is_what_counts() -> None:
    partition = PartitionRegistration((4, 5, 3), (3,), 3, 0, 0, (bytes(16),) * 3, removing_replicas=(5,))
    assert target_of(partition) == [4, 3]
