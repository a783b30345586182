"""The offsets of all groups of a shard, as pairs of what is committed and what is on its way.

A record changes the pending side as soon as it is appended and the committed side when it is committed. Decisions see
the latest, readers see the committed.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from coordinator.group.records import CommittedOffset, OffsetChange

TopicPartition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, Offsets] = {}
        self._pending: deque[tuple[int, OffsetChange]] = deque()
        """Changes that are not committed yet, each with the end offset of its batch."""

    def replay(self, change: OffsetChange, end_offset: int) -> None:
        """An appended record, whose batch ends at `end_offset`."""
        self._pending.append((end_offset, change))

    def commit(self, committed_end_offset: int) -> None:
        """All records below this offset are committed."""
        pending = self._pending
        while pending and pending[0][0] <= committed_end_offset:
            self._settle(pending.popleft()[1])

    @property
    def count(self) -> int:
        """Of committed offsets, over all groups."""
        return sum(map(len, self._committed.values()))

    def committed(self, group_id: str) -> Offsets:
        """What readers may see. Not to be changed."""
        return self._committed.get(group_id, {})

    def latest(self, group_id: str) -> Offsets:
        """What decisions rest on: everything appended. Not to be changed."""
        if not self._pending:
            return self.committed(group_id)
        offsets = dict(self.committed(group_id))
        for _, change in self._pending:
            if change.group_id == group_id:
                apply(offsets, change)
        return offsets

    def groups(self) -> list[str]:
        """All groups that have offsets, committed or not."""
        found = dict.fromkeys(self._committed)
        found.update(dict.fromkeys(change.group_id for _, change in self._pending))
        return list(found)

    def _settle(self, change: OffsetChange) -> None:
        offsets = self._committed.setdefault(change.group_id, {})
        apply(offsets, change)
        if not offsets:
            del self._committed[change.group_id]


def apply(offsets: Offsets, change: OffsetChange) -> None:
    key = (change.topic, change.partition)
    if change.value is None:
        offsets.pop(key, None)
    else:
        offsets[key] = change.value
