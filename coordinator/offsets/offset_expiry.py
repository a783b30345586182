"""Offsets that nobody needs any more, and the groups that are left with nothing.

| group | an offset's age counts from |
|---|---|
| no protocol type (a consumer without a group) | its commit |
| empty | the moment the group became empty; its commit where an old record does not tell |
| stable, of consumers | its commit, if no member is subscribed to the topic |
| any other | never: it does not expire |

An offset with an explicit expiry goes at that time instead, where its group lets anything go at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.classic.group import Group
from coordinator.classic.group_state import EMPTY, STABLE
from coordinator.group.records import CommittedOffset, OffsetChange
from coordinator.group.step import Turn
from coordinator.offsets.offset_delete import bury
from coordinator.offsets.offset_store import Offsets, TopicPartition


def expire(turn: Turn, records_max: int) -> bool:
    """Write tombstones for what has expired; False where there is more than fits into one batch."""
    for group in list(turn.groups.values()):
        if len(turn.changes) >= records_max:
            return False
        offsets = turn.offsets.latest(group.group_id)
        expired = list(expired_of(turn, group, offsets))
        if len(expired) == len(offsets) and group.state is EMPTY:
            bury(turn, group.group_id)
            continue
        for topic, partition_index in expired:
            turn.write(OffsetChange(group.group_id, topic, partition_index, None))
    return True


def expired_of(turn: Turn, group: Group, offsets: Offsets) -> Iterator[TopicPartition]:
    retention_ms = turn.config.offsets_retention_ms
    for (topic, partition_index), committed in offsets.items():
        since_ms = ages_from_ms(group, committed)
        if since_ms is None or group.is_subscribed_to(topic):
            continue
        end_ms = since_ms + retention_ms if committed.expire_ms is None else committed.expire_ms
        if turn.wall_ms >= end_ms:
            yield topic, partition_index


def ages_from_ms(group: Group, committed: CommittedOffset) -> int | None:
    """Since when the offset is not needed; None: it may be needed."""
    if group.protocol_type is None:
        return committed.commit_ms
    if group.state is EMPTY:
        return committed.commit_ms if group.changed_ms is None else group.changed_ms
    if group.is_consumer_group and group.state is STABLE and group.subscribed_topics is not None:
        return committed.commit_ms
    return None
