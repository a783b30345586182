"""A remote segment as the metadata records describe it: its content, the time of its records, and the state of the
copy.

The states of a remote segment, and of the removal of a partition's remote segments:

    copy started ──► copy finished ──► delete started ──► delete finished
         └───────────────────────────────►┘

A segment can be read from `COPY_SEGMENT_FINISHED` until `DELETE_SEGMENT_STARTED`. A record that repeats the current
state only updates the broker, the time of the event and the custom metadata. A record with any other step is refused:
it has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.storage.checkpoints.leader_epochs import EpochStart

UNFINISHED_COPY_REMAINS: Final = b"\x4d\x81"
"""The custom metadata of a record that deletes a copy because it is unfinished."""


class SegmentState(IntEnum):
    """The state of one copy of a segment, by its number in records."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """The state of the removal of all remote segments of a partition, by its number in records."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


PARTITION_REMOVAL_STATES: Final = frozenset(
    {PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED}
)
"""The states in which all segments of a partition are being deleted. No segment counts as copied then."""
NEXT_SEGMENT_STATES: Final[dict[SegmentState, tuple[SegmentState, ...]]] = {
    SegmentState.COPY_SEGMENT_STARTED: (
        SegmentState.COPY_SEGMENT_STARTED,
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    ),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED),
    SegmentState.DELETE_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_FINISHED,),
}
"""The states that may follow each state of a segment."""
NEXT_PARTITION_DELETE_STATES: Final[dict[PartitionDeleteState | None, tuple[PartitionDeleteState, ...]]] = {
    None: (PartitionDeleteState.DELETE_PARTITION_MARKED,),
    PartitionDeleteState.DELETE_PARTITION_MARKED: (
        PartitionDeleteState.DELETE_PARTITION_MARKED,
        PartitionDeleteState.DELETE_PARTITION_STARTED,
    ),
    PartitionDeleteState.DELETE_PARTITION_STARTED: (
        PartitionDeleteState.DELETE_PARTITION_STARTED,
        PartitionDeleteState.DELETE_PARTITION_FINISHED,
    ),
    PartitionDeleteState.DELETE_PARTITION_FINISHED: (
        PartitionDeleteState.DELETE_PARTITION_FINISHED,
        PartitionDeleteState.DELETE_PARTITION_MARKED,
    ),
}
"""The states that may follow each state of a removal; None means that no removal has begun. A topic whose removal is
finished may be tiered again, and be removed again."""


class RemotePartition(NamedTuple):
    """A partition of a topic with the topic's id, because a topic that is created again under the same name has another
    id."""

    topic: str
    topic_id: bytes
    """The topic id, 16 bytes."""
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """One copy of a segment in remote storage. Each attempt to copy has a random id."""

    segment_id: bytes
    """The id of the copy, 16 bytes."""
    start_offset: int
    last_offset: int
    """The last offset (inclusive), which Kafka's record calls the end offset."""
    broker_id: int
    """The id of the broker that wrote the latest record of this segment."""
    max_timestamp_ms: int
    event_timestamp_ms: int
    """The time (ms) at which the latest record of this segment was written."""
    epochs: tuple[EpochStart, ...]
    """The leader epochs in the segment, each with the offset of its first batch in the segment; never empty, ascending.
    The first may begin past `start_offset`, at the log start offset of the time of the copy; nothing before it is read.
    """
    size: int
    """The size of the .log object in bytes."""
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    """At most `remote.log.metadata.custom.metadata.max.bytes` bytes; the lineage (`lineage.py`) if a segment was
    cleaned or erased or may be cleaned."""
    has_transaction_index: bool = True

    def last_offset_in(self, epoch_slot: int) -> int:
        """The last offset (inclusive) in this segment of the leader epoch at the index `epoch_slot` of `epochs`."""
        later = epoch_slot + 1
        return self.epochs[later].start_offset - 1 if later < len(self.epochs) else self.last_offset

    def with_update(self, update: SegmentUpdate) -> RemoteSegment:
        """Return the segment after an update. If the update has no custom metadata, the segment keeps its own."""
        keeps_custom = update.custom_metadata is None or update.deletes_unfinished_copy
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            state=update.state,
            custom_metadata=self.custom_metadata if keeps_custom else update.custom_metadata,
        )


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """A later record of a segment: the state that the segment enters."""

    segment_id: bytes
    broker_id: int
    event_timestamp_ms: int
    state: SegmentState
    custom_metadata: bytes | None = None

    @property
    def deletes_unfinished_copy(self) -> bool:
        """Whether this record deletes a copy that its writer knew to be unfinished. DIVERGES: Apache Kafka's record
        does not say why, and its deletion takes effect on a finished copy as well.
        """
        return self.state is SegmentState.DELETE_SEGMENT_STARTED and self.custom_metadata == UNFINISHED_COPY_REMAINS


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """A record with the state of the removal of all remote segments of a partition."""

    broker_id: int
    event_timestamp_ms: int
    state: PartitionDeleteState
