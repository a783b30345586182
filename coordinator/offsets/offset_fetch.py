"""OffsetFetch: the committed offsets of a group."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.coordinator.group.events import FetchStableOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.records import CommittedOffset
from moldau.coordinator.offsets.offset_store import GroupOffsets, OffsetStore
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.step import write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from moldau.protocol.schema import ZERO_UUID

NO_OFFSET: Final = -1
"""The offset in the response for a partition without a committed offset."""


class StableOffsetFetch(NamedTuple):
    """The outcome of an OffsetFetch that waits for all earlier commits."""

    store: OffsetStore
    waiter: Waiter
    request: OffsetFetchRequestGroup

    def on_committed(self, step: GroupStep) -> None:
        offsets = self.store.committed_offsets(self.request.group_id)
        step.reply(self.waiter, offsets_of(offsets, self.request, require_stable=True))

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        refusal = OffsetFetchResponseGroup(group_id=self.request.group_id, error_code=write_error(error))
        step.reply(self.waiter, refusal)


def fetch_stable_offsets(step: GroupStep, store: OffsetStore, event: FetchStableOffsets) -> None:
    """Handle an OffsetFetch with `require_stable`. The response waits until earlier commits are committed in the log,
    but not for transactions. A partition with an offset of an open transaction gets the error UNSTABLE_OFFSET_COMMIT,
    and the client repeats the request."""
    step.when_committed(StableOffsetFetch(store, event.waiter, event.request))


def offsets_of(
    group: GroupOffsets, request: OffsetFetchRequestGroup, *, require_stable: bool = False
) -> OffsetFetchResponseGroup:
    """The OffsetFetch response with the offsets of the topics that a request names, or of all topics if it has no list.
    Without a list, a partition whose only offset is pending in a transaction is left out, as in Apache Kafka.
    """
    offsets, pending = group.offsets, group.pending if require_stable else {}
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        by_topic: dict[str, OffsetFetchResponseTopics] = {}
        for (name, index), committed in offsets.items():
            topic = by_topic.get(name)
            if topic is None:
                topic = by_topic[name] = OffsetFetchResponseTopics(name=name)
                response.topics.append(topic)
            topic.partitions.append(
                unstable_partition_result(index) if (name, index) in pending else partition_result(index, committed)
            )
        return response
    for asked in request.topics:
        topic = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
        for index in asked.partition_indexes:
            if (asked.name, index) in pending:
                topic.partitions.append(unstable_partition_result(index))
                continue
            entry = offsets.get((asked.name, index))
            is_current = entry is not None and not is_of_another_topic(entry.topic_id, asked.topic_id)
            topic.partitions.append(partition_result(index, entry if is_current else None))
        response.topics.append(topic)
    return response


def is_of_another_topic(committed_id: bytes, asked_id: bytes) -> bool:
    """Whether the topic of a committed offset was deleted and created again under the same name, so that the ids
    differ. False if one of the ids is zero, which means that it is not known."""
    return ZERO_UUID not in (committed_id, asked_id) and committed_id != asked_id


def unstable_partition_result(index: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )


def partition_result(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
