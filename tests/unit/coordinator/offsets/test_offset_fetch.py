"""Offsets belong to a topic, not to its name; those of open transactions are not told."""

from __future__ import annotations

import pytest

from moldau.coordinator.group.records import CommittedOffset, OffsetChange
from moldau.coordinator.offsets.offset_fetch import AllOffsets, offsets_of
from moldau.coordinator.offsets.offset_store import GroupOffsets
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.schema import ZERO_UUID

OLD, NEW = b"\1" * 16, b"\2" * 16


@pytest.mark.parametrize(
    ("committed_under", "asked_for", "offset"),
    [
        (OLD, OLD, 5),
        (OLD, NEW, -1),
        (OLD, ZERO_UUID, 5),
        (ZERO_UUID, NEW, 5),
        (ZERO_UUID, ZERO_UUID, 5),
    ],
)
def test_offsets_of_a_former_topic_of_that_name_are_not_given(
    committed_under: bytes, asked_for: bytes, offset: int
) -> None:
    offsets = GroupOffsets({("t", 0): CommittedOffset(5, topic_id=committed_under)})
    asked = OffsetFetchRequestTopics(name="t", topic_id=asked_for, partition_indexes=[0])
    response = offsets_of(offsets, OffsetFetchRequestGroup(group_id="g", topics=[asked]))
    assert not isinstance(response, AllOffsets)
    assert response.topics[0].partitions[0].committed_offset == offset


STABLE_ANSWERS = [
    ({}, None, []),
    ({}, [0, 1], [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (1, -1, ErrorCode.NONE)]),
    ({0: 4}, None, [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]),
    ({0: 4}, [0], [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]),
    ({1: 4}, None, [(1, 4, ErrorCode.NONE)]),
    ({1: 4}, [0, 1], [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (1, 4, ErrorCode.NONE)]),
]
"""Partition 0 is pending in a transaction. Which offsets count, which partitions are asked for (None: all), what the
answer says of each."""


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize(("committed", "asked", "stable"), STABLE_ANSWERS)
def test_pending_offsets_are_an_error_for_clients_that_require_stable_ones(
    committed: dict[int, int], asked: list[int] | None, stable: list[tuple[int, int, ErrorCode]], require_stable: bool
) -> None:
    group = GroupOffsets({("t", index): CommittedOffset(offset) for index, offset in committed.items()})
    group.apply(OffsetChange("g", "t", 0, CommittedOffset(5), 7))
    topics = None if asked is None else [OffsetFetchRequestTopics(name="t", partition_indexes=asked)]
    answer = offsets_of(group, OffsetFetchRequestGroup(group_id="g", topics=topics), require_stable=require_stable)
    response = answer.whole() if isinstance(answer, AllOffsets) else answer
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    unstable = [(index, committed.get(index, -1), ErrorCode.NONE) for index, _, _ in stable]
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in partitions] == (
        stable if require_stable else unstable
    )
