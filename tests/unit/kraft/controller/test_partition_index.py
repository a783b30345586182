"""The index of partitions by broker: made of an image, or brought from an earlier one to it."""

from __future__ import annotations

from moldau.kraft.controller.partition_index import IndexedTopics, PartitionIndex
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.records import metadata as records
from tests.unit.kraft.image.images import everything, image_of, topic, uuid


def told(index: PartitionIndex) -> list[object]:
    by_broker = [index._in_sync, index._led, index._eligible]
    sets = [{broker_id: set(keys) for broker_id, keys in each.items()} for each in by_broker]
    return [*sets, set(index.imbalanced), set(index.reassigned)]


def brought(before: MetadataImage, after: MetadataImage) -> PartitionIndex:
    return IndexedTopics(before.topics, PartitionIndex(before.topics)).update_to(after.topics)


def test_an_index_that_was_made_beforehand_follows_what_happened_since() -> None:
    before = image_of(everything())
    changes = [
        records.PartitionChangeRecord(partition_id=1, topic_id=uuid(201), isr=[2], leader=2),
        *topic("new", 77),
    ]
    after = image_of(changes, before)
    gone = image_of([records.RemoveTopicRecord(topic_id=uuid(201))], after)
    for earlier, later in ((before, before), (before, after), (before, gone), (after, gone), (gone, after)):
        assert told(brought(earlier, later)) == told(PartitionIndex(later.topics))
    assert told(PartitionIndex(before.topics)) != told(PartitionIndex(after.topics))
