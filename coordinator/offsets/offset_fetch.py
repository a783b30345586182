"""OffsetFetch: how far groups came, as far as that is committed."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.group.events import FetchStableOffsets
from coordinator.group.records import CommittedOffset
from coordinator.group.step import Turn, write_refusal
from coordinator.offsets.offset_store import Offsets
from coordinator.runtime.effects import Waiter
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.schema import ZERO_UUID

NO_OFFSET = -1


class StableRead(NamedTuple):
    """The commits that were under way when the read came are decided."""

    waiter: Waiter
    request: OffsetFetchRequestGroup

    def committed(self, turn: Turn) -> None:
        turn.reply(self.waiter, offsets_of(turn.offsets.committed(self.request.group_id), self.request))

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        refusal = OffsetFetchResponseGroup(group_id=self.request.group_id, error_code=write_refusal(error))
        turn.reply(self.waiter, refusal)


def fetch_stable_offsets(turn: Turn, event: FetchStableOffsets) -> None:
    turn.when_committed(StableRead(event.waiter, event.request))


def offsets_of(offsets: Offsets, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """The offsets that a request names (topics by name), or all of the group's where it names none."""
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
    """The topic was deleted and made again under the same name."""
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
