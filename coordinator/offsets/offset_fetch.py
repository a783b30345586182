"""OffsetFetch: the committed offsets of a group."""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator.group.events import FetchStableOffsets
from coordinator.group.records import CommittedOffset, Offsets
from coordinator.group.step import GroupStep
from coordinator.offsets.offset_store import OffsetStore
from coordinator.runtime.effects import Waiter
from coordinator.runtime.write_errors import write_error
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.schema import ZERO_UUID

NO_OFFSET: Final = -1
"""The group has no offset for the partition."""


class StableRead(NamedTuple):
    """The outcome of a read that waits until the commits before it are decided."""

    store: OffsetStore
    waiter: Waiter
    request: OffsetFetchRequestGroup

    def committed(self, step: GroupStep) -> None:
        step.reply(self.waiter, offsets_of(self.store.committed(self.request.group_id), self.request))

    def failed(self, step: GroupStep, error: ErrorCode) -> None:
        refusal = OffsetFetchResponseGroup(group_id=self.request.group_id, error_code=write_error(error))
        step.reply(self.waiter, refusal)


def fetch_stable_offsets(step: GroupStep, store: OffsetStore, event: FetchStableOffsets) -> None:
    """OffsetFetch with `require_stable`."""
    step.when_committed(StableRead(store, event.waiter, event.request))


def offsets_of(offsets: Offsets, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """The offsets of the topics that a request names, or of all topics where it names none."""
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        by_topic: dict[str, OffsetFetchResponseTopics] = {}
        for (name, index), committed in offsets.items():
            topic = by_topic.get(name)
            if topic is None:
                topic = by_topic[name] = OffsetFetchResponseTopics(name=name)
                response.topics.append(topic)
            topic.partitions.append(found(index, committed))
        return response
    for asked in request.topics:
        topic = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
        for index in asked.partition_indexes:
            entry = offsets.get((asked.name, index))
            is_current = entry is not None and not is_of_another_topic(entry.topic_id, asked.topic_id)
            topic.partitions.append(found(index, entry if is_current else None))
        response.topics.append(topic)
    return response


def is_of_another_topic(committed_id: bytes, asked_id: bytes) -> bool:
    """Whether the topic was deleted and created again under the same name. An id of zeroes is unknown and never
    differs."""
    return ZERO_UUID not in (committed_id, asked_id) and committed_id != asked_id


def found(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
