"""What the committed records of `__remote_log_metadata` say: a model of its own, which learns from the leaders' logs.

The model has no offsets by leader epoch, as the product's `RemoteLog` has: it knows each segment and its state.
`is_current` tells whether everything that any broker may have read is in the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_reader import records_of
from moldau.storage.tiered.metadata.records import decode_change
from moldau.storage.tiered.metadata.remote_segment import (
    UNFINISHED_COPY_REMAINS,
    RemotePartition,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.simulation.invariants.observation import Observation, PartitionKey, Replica, StoredBatch

STARTED: Final = SegmentState.COPY_SEGMENT_STARTED
FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED
DELETING: Final = SegmentState.DELETE_SEGMENT_STARTED
DELETED: Final = SegmentState.DELETE_SEGMENT_FINISHED
STEPS: Final = {STARTED: (FINISHED, DELETING), FINISHED: (DELETING,), DELETING: (DELETED,), DELETED: ()}

Leading = tuple[int, int, int]
"""Node, its life, the leader epoch."""


@dataclass(slots=True)
class Known:
    """A remote segment, as the committed records tell of it."""

    segment: RemoteSegment
    state: SegmentState
    offset: int = 0
    """Of its first record."""

    def take(self, update: SegmentUpdate) -> None:
        state = update.state
        if self.state is FINISHED and update.custom_metadata == UNFINISHED_COPY_REMAINS:
            return  # it was taken for unfinished
        if state in STEPS[self.state]:
            self.state = state


class LeadersSeen:
    """Of which partitions the present leader was looked at, having all that was ever committed."""

    def __init__(self) -> None:
        self._leading: dict[PartitionKey, Leading] = {}
        self._present: set[PartitionKey] = set()

    def learn(self, key: PartitionKey, leader: Replica) -> None:
        self._present.add(key)
        leadership = leader.partition.leadership
        if leadership is not None and leader.partition.high_watermark >= leadership.epoch_start_offset:
            self._leading[key] = (leader.node_id, leader.life, leader.partition.leader_epoch)

    def begin(self) -> None:
        """Another observation."""
        self._present.clear()

    def is_current(self, seen: Observation, key: PartitionKey) -> bool:
        """A node outside of an observation has not moved since it was in one; if its log has failed, it may have."""
        assigned = seen.assigned(key)
        if assigned is None:
            return False
        lives = {node.id: node.life for node in seen.nodes}
        leading = (assigned.leader, lives.get(assigned.leader, -1), assigned.leader_epoch)
        is_looked_at = assigned.leader not in lives or key in self._present
        return is_looked_at and self._leading.get(key) == leading


class RemoteMetadata:
    def __init__(self) -> None:
        self.segments: dict[RemotePartition, dict[bytes, Known]] = {}
        self.end_offsets: dict[int, int] = {}
        """By partition of the metadata topic: the offset after the last record that was taken."""
        self.leaders = LeadersSeen()
        """Also of the partitions of other topics."""
        self._keys: dict[int, PartitionKey] = {}
        self._gaps: set[int] = set()

    def learn(self, seen: Observation) -> None:
        self.leaders.begin()
        for key, replica in seen.all_replicas():
            if replica.partition.leadership is not None and replica.partition.log.failure is None:
                if replica.partition.topic == REMOTE_LOG_METADATA_TOPIC:
                    self._keys[key[1]] = key
                    self._take_all(key[1], replica)
                self.leaders.learn(key, replica)

    def is_current(self, seen: Observation, index: int) -> bool:
        """Whether every record of a partition of the metadata topic that is committed was taken."""
        key = self._keys.get(index)
        return key is not None and index not in self._gaps and self.leaders.is_current(seen, key)

    def of(self, partition: RemotePartition) -> Iterable[Known]:
        return self.segments.get(partition, {}).values()

    def _take_all(self, index: int, leader: Replica) -> None:
        end_offset, high_watermark = self.end_offsets.get(index, 0), leader.partition.high_watermark
        new: list[StoredBatch] = []
        for batch in reversed(leader.content.batches):
            if batch.last_offset < end_offset:
                break
            if batch.last_offset < high_watermark:
                new.append(batch)
        if high_watermark > end_offset and (not new or new[-1].base_offset > end_offset):
            self._gaps.add(index)
        for batch in reversed(new):
            self._take(leader, batch)
        self.end_offsets[index] = max(end_offset, high_watermark)

    def _take(self, leader: Replica, batch: StoredBatch) -> None:
        path = f"{leader.partition.log.directory}/{batch.segment_offset:020d}.log"
        stored = bytes(leader.disk.peek(path)[batch.position : batch.position + batch.size])
        if not stored or batch.is_marker:
            return
        for record in records_of(stored, 0, parse_header(stored, 0)):
            assert record.value is not None
            partition, change = decode_change(record.value)
            assert partition is not None
            known = self.segments.setdefault(partition, {})
            if isinstance(change, RemoteSegment):
                before = known.get(change.segment_id)
                if before is None or before.state is DELETED:  # A late repeat of the first record begins it anew.
                    known[change.segment_id] = Known(change, change.state, record.offset)
            elif isinstance(change, SegmentUpdate) and change.segment_id in known:
                known[change.segment_id].take(change)


def covered_end(segments: Iterable[Known], start_offset: int) -> int:
    """How far, without a gap from an offset on, these segments reach."""
    end_offset = start_offset
    for known in sorted(segments, key=lambda each: each.segment.start_offset):
        if known.segment.start_offset > end_offset:
            break
        end_offset = max(end_offset, known.segment.last_offset + 1)
    return end_offset
