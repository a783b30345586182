"""What a run of records makes does not depend on where it is divided: a node that reads the whole log at start, and one
that read it batch by batch, have the same metadata."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataImage
from moldau.protocol.records import metadata as records
from tests.unit.kraft.image.images import broker, config, image_of, topic, uuid

NAMES = ("a.b", "a_b")
"""That of a metric is the same for both: only one of them may live at a time."""
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "remove", "grow", "shrink", "lead", "clear", "clear all", "set", "unset", "broker")),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    min_size=20,
    max_size=40,
)


@dataclass(slots=True)
class Writer:
    """A controller that writes any records that make sense."""

    living: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the number in the id, and the count of partitions."""
    registered: set[int] = field(default_factory=set)
    number: int = 0

    def records_of(self, step: str, name: str, which: int) -> list[object]:
        if step == "clear all":
            return [records.ClearElrRecord(topic_name="")]
        if step == "broker":
            return self._broker(which)
        if step == "create":
            return [] if self._collides(name) else self._create(name, which + 1)
        if name not in self.living:
            return []
        number, count = self.living[name]
        change = records.PartitionChangeRecord(partition_id=which % count, topic_id=uuid(number), isr=[1])
        match step:
            case "remove":
                del self.living[name]
                return [records.RemoveTopicRecord(topic_id=uuid(number))]
            case "grow":
                self.living[name] = number, count + 1
                return [topic(name, number, count + 1)[-1]]
            case "shrink":
                change.eligible_leader_replicas = [2]
                return [change]
            case "lead":
                change.leader, change.isr, change.last_known_elr = -1, [], [1]
                return [change]
            case "clear":
                return [records.ClearElrRecord(topic_name=name)]
        return [config(name, f"setting.{which}", "1" if step == "set" else None)]

    def _collides(self, name: str) -> bool:
        return any(other.replace(".", "_") == name.replace(".", "_") for other in self.living)

    def _create(self, name: str, count: int) -> list[object]:
        self.number += 1
        self.living[name] = self.number, count
        return topic(name, self.number, count)

    def _broker(self, broker_id: int) -> list[object]:
        if broker_id not in self.registered:
            self.registered.add(broker_id)
            return [broker(broker_id), records.UnfenceBrokerRecord(id=broker_id, epoch=5)]
        self.registered.remove(broker_id)
        return [
            records.FenceBrokerRecord(id=broker_id, epoch=5),
            records.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=5),
        ]


def one_by_one(log: list[object], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    for record in log:
        base = image_of([record], base)
    return base


@settings(deadline=None)
@given(STEPS, st.integers(0, 80))
def test_one_run_makes_what_many_make(steps: list[tuple[str, str, int]], divided_at: int) -> None:
    writer = Writer()
    log = [record for step in steps for record in writer.records_of(*step)]
    expected = one_by_one(log)
    assert image_of(log) == expected
    assert image_of(log[divided_at:], image_of(log[:divided_at])) == expected


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_node_that_restarts_clears_the_eligible_leaders_of_a_topic_that_is_younger_than_its_log(name: str) -> None:
    """What `min.insync.replicas` of a topic brings about; a node that missed it stayed one partition epoch behind."""
    eligible = records.PartitionChangeRecord(
        partition_id=0, topic_id=uuid(7), isr=[1], eligible_leader_replicas=[2], last_known_elr=[2]
    )
    partition = image_of([*topic("a.b", 7), eligible, records.ClearElrRecord(topic_name=name)]).topics.partition(
        "a.b", 0
    )
    assert partition is not None and partition.partition_epoch == 2
    assert not partition.eligible_leader_replicas and not partition.last_known_elr


def test_a_topic_that_is_deleted_does_not_come_back_when_all_eligible_leaders_are_cleared() -> None:
    eligible = records.PartitionChangeRecord(partition_id=0, topic_id=uuid(7), isr=[1], eligible_leader_replicas=[2])
    base = image_of([*topic("a.b", 7), eligible])
    after = image_of([records.RemoveTopicRecord(topic_id=uuid(7)), records.ClearElrRecord(topic_name="")], base)
    assert not after.topics.by_id and after.topics.by_name("a.b") is None
