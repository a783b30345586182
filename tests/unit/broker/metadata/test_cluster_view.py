"""Queries on the metadata follow the latest image."""

from __future__ import annotations

from random import Random

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataImage
from moldau.kraft.image.topics import Topic, TopicsImage


class Published:
    image: MetadataImage = EMPTY_IMAGE


def with_topic(partitions: int) -> MetadataImage:
    topic = Topic("t", bytes(16), dict.fromkeys(range(partitions)))  # type: ignore[arg-type]
    topics = EMPTY_IMAGE.topics
    return EMPTY_IMAGE._replace(
        topics=TopicsImage(
            topics.by_id.with_changes({topic.id: topic}), topics.ids.with_changes({topic.name: topic.id})
        )
    )


def test_the_number_of_partitions_is_that_of_the_latest_image() -> None:
    published = Published()
    view = ClusterView(published, "cluster", Random(1))
    counts = []
    for image in (EMPTY_IMAGE, with_topic(3), with_topic(5), EMPTY_IMAGE):
        published.image = image
        counts += [view.partitions_count("t"), view.partitions_count("t")]
    assert counts == [None, None, 3, 3, 5, 5, None, None]
