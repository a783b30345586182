"""Offsets belong to a topic, not to its name."""

from __future__ import annotations

import pytest

from coordinator.group.records import CommittedOffset
from coordinator.offsets.offset_fetch import offsets_of
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.schema import ZERO_UUID

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
    offsets = {("t", 0): CommittedOffset(5, topic_id=committed_under)}
    asked = OffsetFetchRequestTopics(name="t", topic_id=asked_for, partition_indexes=[0])
    response = offsets_of(offsets, OffsetFetchRequestGroup(group_id="g", topics=[asked]))
    assert response.topics[0].partitions[0].committed_offset == offset
