"""Corrects the states of share groups in a restored log of `__share_group_state`.

If the logs are cut at a requested time, a partition may end before the start offset of a share group, because
timestamps of the two logs are from different clocks. The group would then skip new records up to its start offset, and
new records whose offsets its state has as delivered. So such a state is cut at the end of its partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.share_coordinator.records import ShareStateChange, ShareStateRecordReader
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateUpdate, updated_state
from moldau.protocol.primitives import BytesLike

FINAL_STATES: Final = (2, 4)
"""The delivery states of records that are not delivered again: acknowledged and archived."""


class CutShareState(NamedTuple):
    """The state of a share partition that a restore cuts, because it goes past the end of the partition."""

    key: ShareKey
    before: ShareState
    after: ShareState
    end_offset: int
    """The end of the restored partition."""

    def change(self) -> ShareStateChange:
        return ShareStateChange(self.key, self.after)


class RestoredShareStates:
    """Collects the states of share partitions from one partition of `__share_group_state`. The caller passes the
    batches of the restored log in order.
    """

    def __init__(self) -> None:
        self._reader = LogReader(0, ShareStateRecordReader())
        self._states: dict[ShareKey, ShareState] = {}

    def add_batch(self, batch: BytesLike) -> None:
        """Note the next batch of the restored log. Raises `MalformedMessage`."""
        for (key, value, _), _ in self._reader.read(batch):
            if value is None:
                self._states.pop(key, None)
            elif isinstance(value, StateUpdate):
                before = self._states.get(key)
                self._states[key] = value.as_state() if before is None else updated_state(before, value)
            else:
                self._states[key] = value

    def cut_states(self, ends: Mapping[tuple[bytes, int], int], time_ms: int) -> list[CutShareState]:
        """Return the states that the restore cuts. `ends`: the end offsets of all restored partitions, by topic id and
        partition. `time_ms`: the time of the new records.
        """
        found = []
        for key, state in self._states.items():
            end_offset = ends.get((key.topic_id, key.partition))
            if end_offset is None:
                continue  # Without its topic the state is never read.
            if state.start_offset > end_offset or any(each.last_offset >= end_offset for each in state.batches):
                found.append(CutShareState(key, state, state_below(state, end_offset, time_ms), end_offset))
        return found


def state_below(state: ShareState, end_offset: int, time_ms: int) -> ShareState:
    """Return a snapshot of a state without the records from `end_offset` on."""
    batches = tuple(
        each._replace(last_offset=min(each.last_offset, end_offset - 1))
        for each in state.batches
        if each.first_offset < end_offset
    )
    final = sum(each.last_offset - each.first_offset + 1 for each in batches if each.delivery_state in FINAL_STATES)
    return state._replace(
        snapshot_epoch=state.snapshot_epoch + 1,
        start_offset=min(state.start_offset, end_offset),
        delivery_complete_count=min(state.delivery_complete_count, final),
        batches=batches,
        write_ms=time_ms,
    )
