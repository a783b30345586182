"""OffsetFetch: the committed offsets of a group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Final, NamedTuple

from moldau.coordinator.group.events import FetchStableOffsets
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.records import CommittedOffset, Offsets, TopicPartition
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


class AllOffsets(NamedTuple):
    """The answer to an OffsetFetch without a list of topics: a copy of all offsets of a group, of which the broker
    makes the response in pieces, because there may be tens of thousands. The response shows them as they were when the
    request was decided on.
    """

    group_id: str
    offsets: Offsets
    unstable: Collection[TopicPartition]
    """The partitions that have the error UNSTABLE_OFFSET_COMMIT in the response."""

    def pieces(
        self, new_topic: Callable[[str], OffsetFetchResponseTopics | None]
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        """Make the response; the caller may pause after each step of the generator. `new_topic` makes the element of a
        topic by its name, or returns None for a topic that is left out."""
        response = OffsetFetchResponseGroup(group_id=self.group_id)
        by_topic: dict[str, OffsetFetchResponseTopics | None] = {}
        for key, committed in self.offsets.items():
            name, index = key
            if name in by_topic:
                topic = by_topic[name]
            else:
                topic = by_topic[name] = new_topic(name)
                if topic is not None:
                    response.topics.append(topic)
            if topic is not None:
                is_unstable = key in self.unstable
                topic.partitions.append(
                    unstable_partition_result(index) if is_unstable else partition_result(index, committed)
                )
            yield
        return response

    def whole(self) -> OffsetFetchResponseGroup:
        """Make the whole response at once."""
        making = self.pieces(lambda name: OffsetFetchResponseTopics(name=name))
        while True:
            try:
                next(making)
            except StopIteration as done:
                response: OffsetFetchResponseGroup = done.value
                return response


def offsets_of(
    group: GroupOffsets, request: OffsetFetchRequestGroup, *, require_stable: bool = False
) -> OffsetFetchResponseGroup | AllOffsets:
    """The OffsetFetch response with the offsets of the topics that a request names, or of all topics if it has no list.
    Without a list, a partition whose only offset is pending in a transaction is left out, as in Apache Kafka.
    """
    offsets, pending = group.offsets, group.pending if require_stable else {}
    if request.topics is None:
        return AllOffsets(request.group_id, dict(offsets), frozenset(pending))
    response = OffsetFetchResponseGroup(group_id=request.group_id)
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
