"""A delta that skips from one image to another is what the records between them would have made."""

from __future__ import annotations

from moldau.kraft.image.difference import difference_between
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.protocol.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

A, B, C = (bytes(15) + bytes([number]) for number in (1, 2, 3))


def after(image: MetadataImage, *records: object) -> MetadataImage:
    replay = Replay(image)
    replay.replay(records, Provenance(image.provenance.end_offset + len(records), 1, 0))
    return replay.image


def partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0
    )


def broker(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker_id, incarnation_id=bytes(16), broker_epoch=broker_id, rack=None)


BEFORE = after(
    EMPTY_IMAGE,
    FeatureLevelRecord(name="metadata.version", feature_level=29),
    FeatureLevelRecord(name="x", feature_level=1),
    broker(1),
    broker(2),
    TopicRecord(name="a", topic_id=A),
    partition(A, 0),
    TopicRecord(name="b", topic_id=B),
    partition(B, 0),
    partition(B, 1),
    ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"),
    ConfigRecord(resource_type=2, resource_name="b", name="retention.ms", value="1"),
)
AFTER = after(
    BEFORE,
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="x", feature_level=0),
    UnregisterBrokerRecord(broker_id=2, broker_epoch=2),
    broker(3),
    RemoveTopicRecord(topic_id=A),
    PartitionChangeRecord(partition_id=1, topic_id=B, isr=[], leader=-1),
    TopicRecord(name="c", topic_id=C),
    partition(C, 0),
    ConfigRecord(resource_type=2, resource_name="b", name="retention.ms", value=None),
    ConfigRecord(resource_type=2, resource_name="b", name="flush.ms", value="7"),
    ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000),
)


def test_the_difference_makes_the_one_of_the_other() -> None:
    assert difference_between(BEFORE, AFTER).apply(AFTER.provenance) == AFTER
    assert difference_between(AFTER, BEFORE).apply(BEFORE.provenance) == BEFORE
    assert difference_between(EMPTY_IMAGE, AFTER).apply(AFTER.provenance) == AFTER


def test_the_difference_names_only_what_differs() -> None:
    delta = difference_between(BEFORE, AFTER)
    assert [topic.name for topic in delta.topics.deleted.values()] == ["a"]
    assert delta.topics.created == {C: "c"}
    assert {topic_id: sorted(touched) for topic_id, touched in delta.topics.changed.items()} == {B: [1], C: [0]}
    same = difference_between(AFTER, AFTER)
    assert not (same.topics.changed or same.topics.deleted or same.configs.changed or same.cluster.brokers)
