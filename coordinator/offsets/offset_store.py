"""The offsets of all groups of a shard, as pairs of committed and pending.

A change is pending as soon as it is appended and becomes committed with its batch. Decisions see the latest state,
readers the committed one.
"""

from __future__ import annotations

from coordinator.group.records import OffsetChange, Offsets, OffsetsLoaded
from coordinator.runtime.pairs import PendingChanges


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, Offsets] = {}
        self._pending: PendingChanges[OffsetChange | OffsetsLoaded] = PendingChanges()

    def append(self, change: OffsetChange | OffsetsLoaded, end_offset: int) -> None:
        """A change is in the log; its batch ends at `end_offset`."""
        self._pending.add(change, end_offset)

    def commit(self, committed_end_offset: int) -> None:
        """All batches that end at this offset or before it are committed."""
        for change in self._pending.take_committed(committed_end_offset):
            if isinstance(change, OffsetsLoaded):
                self._commit_loaded(change)
                continue
            offsets = self._committed.setdefault(change.group_id, {})
            apply(offsets, change)
            if not offsets:
                del self._committed[change.group_id]

    def _commit_loaded(self, loaded: OffsetsLoaded) -> None:
        for group_id, offsets in loaded.offsets.items():
            known = self._committed.setdefault(group_id, offsets)
            if known is not offsets:
                known.update(offsets)

    @property
    def count(self) -> int:
        """The number of committed offsets, over all groups."""
        return sum(map(len, self._committed.values()))

    def committed(self, group_id: str) -> Offsets:
        """What readers may see. The caller does not change it."""
        return self._committed.get(group_id, {})

    def latest(self, group_id: str) -> Offsets:
        """What decisions rest on: everything appended. The caller does not change it."""
        if not self._pending:
            return self.committed(group_id)
        offsets = dict(self.committed(group_id))
        for change in self._pending:
            if isinstance(change, OffsetsLoaded):
                offsets.update(change.offsets.get(group_id, {}))
            elif change.group_id == group_id:
                apply(offsets, change)
        return offsets

    def groups(self) -> list[str]:
        """All groups that have offsets, committed or pending."""
        found = dict.fromkeys(self._committed)
        for change in self._pending:
            found.update(dict.fromkeys(change.offsets if isinstance(change, OffsetsLoaded) else (change.group_id,)))
        return list(found)


def apply(offsets: Offsets, change: OffsetChange) -> None:
    key = (change.topic, change.partition)
    if change.value is None:
        offsets.pop(key, None)
    else:
        offsets[key] = change.value
