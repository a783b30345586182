"""The expiry of offsets, and of groups without offsets.

The retention of an offset begins when its kind of group says that it is no longer needed (`Group.retention_begins_ms`).
An offset for which the client set an expiry time expires at that time instead, under the same condition. An offset does
not expire while an open transaction has one for the same partition; its group stays too.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import OffsetChange, TopicPartition
from moldau.coordinator.group.step import GroupStep
from moldau.coordinator.offsets.group_offsets import GroupOffsets
from moldau.coordinator.offsets.offset_delete import write_tombstones
from moldau.coordinator.offsets.offset_store import OffsetStore


def expire(step: GroupStep, store: OffsetStore, records_max: int) -> bool:
    """Write tombstones for expired offsets. False where more have expired than fit into one batch."""
    for group in list(step.groups.values()):
        if len(step.changes) >= records_max:
            return False
        latest = store.latest(group.group_id)
        expired = list(expired_of(step, group, latest))
        if len(expired) == len(latest.offsets) and not latest.pending and group.is_empty:
            write_tombstones(step, store, group)
            continue
        for topic, partition_index in expired:
            step.write(OffsetChange(group.group_id, topic, partition_index, None))
    return True


def expired_of(step: GroupStep, group: Group, latest: GroupOffsets) -> Iterator[TopicPartition]:
    retention_ms = step.config.offsets_retention_ms
    for (topic, partition_index), committed in latest.offsets.items():
        begins_ms = group.retention_begins_ms(committed.commit_ms)
        is_pending = (topic, partition_index) in latest.pending
        if begins_ms is None or is_pending or group.is_subscribed_to(topic):
            continue
        end_ms = begins_ms + retention_ms if committed.expire_ms is None else committed.expire_ms
        if step.wall_ms >= end_ms:
            yield topic, partition_index
