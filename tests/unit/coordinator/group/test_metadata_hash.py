"""The hash of subscribed topics, against values that Apache Kafka's hash library gave for the same topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.coordinator.group.metadata_hash import NO_TOPICS_HASH, group_hash, topic_hash


class Topic(NamedTuple):
    name: str
    id: bytes
    racks: list[list[str]]

    @property
    def partitions_count(self) -> int:
        return len(self.racks)

    def racks_of(self, partition: int) -> Iterable[str]:
        return self.racks[partition]


TOPIC = Topic("topic-é", bytes(range(1, 17)), [["a", "rack-2"]] * 3)


def test_a_topic_hashes_as_in_apache_kafka() -> None:
    assert topic_hash(TOPIC) == -8206956644615449806


def test_a_group_hashes_as_in_apache_kafka() -> None:
    assert group_hash({"second": -7, "first": 5}) == -4646943608980624969


def test_a_group_without_topics_has_the_hash_0() -> None:
    assert group_hash({}) == NO_TOPICS_HASH == 0


def test_the_order_of_racks_does_not_matter_but_each_replica_does() -> None:
    turned = TOPIC._replace(racks=[["rack-2", "a"]] * 3)
    doubled = TOPIC._replace(racks=[["a", "a", "rack-2"]] * 3)
    assert topic_hash(turned) == topic_hash(TOPIC)
    assert topic_hash(doubled) != topic_hash(TOPIC)


def test_a_new_partition_and_another_id_change_the_hash() -> None:
    grown = TOPIC._replace(racks=[*TOPIC.racks, ["a", "rack-2"]])
    recreated = TOPIC._replace(id=bytes(16))
    assert len({topic_hash(topic) for topic in (TOPIC, grown, recreated)}) == 3
