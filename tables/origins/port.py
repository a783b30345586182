"""The interface of an origin: a source of partitions' segments, such as the log directories of brokers. The planner
uses origins on the driver; only `SegmentSource` and `Slice` are pickled into the tasks.

| of the port       | is                                                                  | for log directories        |
|-------------------|---------------------------------------------------------------------|----------------------------|
| `Origin`          | the partitions of a place, and what reading there costs             | those of some brokers      |
| `PartitionOrigin` | one partition as it was listed: offsets, segments, times, aborts    | the best replica           |
| `StoredSegment`   | consecutive offsets in one file or object, with its size            | a .log file                |
| `SegmentSource`   | opens a segment in a task, and refuses one that is not what was listed | a path, a file's stamp  |
| `Slice`           | whole batches of a segment, and the offsets to take from them       |                            |

A segment is distinguished from one that replaced it: a file by its size, inode and time of modification, an object by
the segment id in its name. A task also compares the offsets of the batches (decoding/coverage.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from moldau.protocol.old_messages import upgrade_messages
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_reader import RECORDS_SIZE_MAX
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.port import FileStamp
from moldau.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from moldau.storage.tiered.layout import SegmentObject

OFFSET_MAX: Final = (1 << 63) - 1


class StoredSegment(NamedTuple):
    """A segment of a partition when its origin (a source of segments) listed it. The segments that one origin lists for
    a partition do not overlap."""

    start_offset: int
    end_offset: int
    """The end offset (exclusive). For a growing segment it is the end of the part that may be read."""
    size: int
    """The size of its records in bytes."""
    name: str
    """The name by which its `SegmentSource` opens it: a path, or the key of an object."""
    is_growing: bool
    """Whether a broker may still append to it. Its size is then a lower bound."""
    batches_start: int = 0
    """An offset below which the segment has no batch. The part to read may begin later."""
    batches_end: int = OFFSET_MAX
    """An offset from which on the segment has no batch."""
    is_dense: bool = False
    """Whether its batches have every offset, because no cleaner has removed any."""
    stamp: FileStamp | None = None
    """The size, inode and modification time of its file when it was listed."""


class SegmentPart(NamedTuple):
    """A part of a segment that consists of whole batches: [start_position, end_position) in bytes."""

    start_position: int
    end_position: int
    last_offset: int | None
    """The last offset of the last batch; None if it is not known.

    A task compares it with the batch that it finds, because in a replaced file another batch may end at this position.
    """


class SegmentFile(Protocol):
    """The file of a segment, as a task reads it: those methods of `moldau.storage.files.port.File` that read."""

    def size(self) -> int: ...

    def pread(self, size: int, position: int) -> BytesLike:
        """Read up to `size` bytes from `position` on; fewer only at the end of the segment."""

    def close(self) -> None: ...


@runtime_checkable
class FileInPieces(SegmentFile, Protocol):
    """A file whose bytes arrive in pieces, each of them a buffer."""

    def rest_of_piece(self, position: int) -> int:
        """The number of bytes from `position` to the end of the piece that contains it. `pread` returns these bytes
        without a copy."""


class SegmentSource(Protocol):
    """Opens segments in a task. It is small, because it is pickled with every slice."""

    def open(self, wanted: Slice) -> SegmentFile:
        """Open the segment of a slice, as it was when the read was planned.

        Raises `DataLost` if the segment does not exist any more, `SegmentReplaced` if other bytes have its name, and
        OSError.
        """


FoundBatch: TypeAlias = tuple[int, BatchHeader, BytesLike, int]
"""A batch that was read: the position at which it is stored, its header, the bytes that were read, and the position of
the batch in these bytes."""


def upgrade_old_message(found: FoundBatch) -> FoundBatch:
    """Convert a message of format 0 or 1 into a batch of format 2, in memory of its own. Raises `MalformedMessage`,
    also if the checksum of the message does not match."""
    position, header, piece, inside = found
    if not crc_is_valid(piece, inside, header):
        raise MalformedMessage(f"the checksum of the message at position {position} does not match")
    return position, *upgrade_messages(piece, inside, header, size_max=RECORDS_SIZE_MAX), 0


@runtime_checkable
class BatchSource(SegmentSource, Protocol):
    """A `SegmentSource` that is read by offsets and not by positions in a file."""

    def batches(self, wanted: Slice) -> Iterator[FoundBatch]:
        """Yield the whole batches with offsets of a slice, in order. If only committed records are read, the batches of
        aborted transactions are left out. Raises `DataLost` and `Refused`."""


@runtime_checkable
class RemoteSegmentSource(SegmentSource, Protocol):
    """A `SegmentSource` of remote storage. Bytes of its segments are requested before a task opens them."""

    def request_ahead(self, wanted: Slice, *, must: bool) -> bool:
        """Request the first bytes of a slice that a task opens soon. Returns whether they were requested. With `must`
        they always are. Otherwise nothing is requested while as many requests are under way as the source allows."""

    def drop_ahead(self, wanted: Slice) -> None:
        """Cancel the requests of `request_ahead` for a slice that no task opens any more."""


class Slice(NamedTuple):
    """A unit of reading: whole batches of one segment, and the offsets [start_offset, end_offset) of the records to
    take from them."""

    topic: str
    partition: int
    source: SegmentSource
    segment: StoredSegment
    start_position: int
    end_position: int
    last_offset: int | None
    """See `SegmentPart.last_offset`."""
    start_offset: int
    end_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions whose records are left out of the result."""
    is_dense: bool = False
    """Whether the batches must have every offset of the slice. A task then reports missing offsets."""
    has_start: bool = False
    """Whether the first batch has `start_offset`. False if an earlier slice of the segment has it."""
    has_end: bool = False
    """Whether the last batch has the offset before `end_offset`. False if a later slice of the segment has it."""
    finds_markers: bool = False
    """Whether a task searches for the markers of transactions that `aborted` does not name. This is needed if committed
    records are read and a transaction index may be missing."""

    @property
    def size(self) -> int:
        return self.end_position - self.start_position

    @property
    def path(self) -> str:
        return self.segment.name

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start_offset} to {self.end_offset}"


Task: TypeAlias = tuple[Slice, ...]


class PartitionOrigin(Protocol):
    """One partition in one origin (a source of segments): its segments and offsets when they were listed."""

    @property
    def key(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> bytes | None: ...

    @property
    def place(self) -> str:
        """The location of the partition, as text for messages."""

    @property
    def node_id(self) -> int | None:
        """The id of the broker that has the replica. None if the partition is not a replica, or its directory does not
        name a broker."""

    @property
    def tier(self) -> str:
        """The kind of storage, as the table `segments` shows it: `local`, `remote` or `broker`."""

    @property
    def source(self) -> SegmentSource:
        """The port through which tasks open these segments."""

    @property
    def segments(self) -> Sequence[StoredSegment]:
        """The segments in the order of their offsets. They do not overlap."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_start_known(self) -> int:
        """The log start offset that is stored in the origin; 0 if none is. A record before it may not be read from any
        origin."""

    @property
    def high_watermark(self) -> int:
        """The end (exclusive) of the offsets that may be read."""

    @property
    def may_have_gaps(self) -> bool:
        """Whether a cleaner may have removed batches, from these segments or from those that they are copies of."""

    @property
    def lost_segments(self) -> Sequence[int]:
        """The base offsets of segments with an index but no records. In a log with gaps they show a loss."""

    @property
    def incomplete(self) -> Sequence[SegmentObject]:
        """One object of each remote segment without a manifest. Such segments are not read."""

    @property
    def is_checkpointed(self) -> bool:
        """Whether the high watermark is known. If not, nothing is read."""

    def last_stable_offset(self) -> int:
        """The last stable offset: the first offset of the earliest transaction that is open at the high watermark, or
        the high watermark if there is none."""

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start_offset, end_offset)."""

    def cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> list[SegmentPart]:
        """Cut the batches of a segment with offsets in [start_offset, end_offset) into parts of about `slice_size`
        bytes.

        The last cut has its last offset set if it ends inside the segment, or if the segment is still growing.
        """

    def start_cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> None:
        """Start the remote reads that `cuts` with the same arguments needs, if there are any. The caller calls `cuts`
        soon after."""

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset below the high watermark whose record is at or after `timestamp_ms`; None if
        there is none."""

    def largest_timestamp(self, segment: StoredSegment) -> int | None:
        """The largest timestamp (ms) of the records of a segment, from its index; None if the index does not give
        it."""

    def has_changed(self) -> bool:
        """Whether a segment was deleted or replaced since the listing. A plan may then be based on other files."""


class Origin(Protocol):
    """A source of partitions' segments: log directories, a tiered storage, or brokers."""

    @property
    def cost(self) -> int:
        """The cost of reading an offset from this origin, relative to other origins. The planner takes the cheapest."""

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster from which the records come; None if it is not known."""

    def partitions(self) -> Mapping[TopicPartition, object]:
        """The partitions that this origin has, as the keys of a mapping. Raises `Refused` and OSError."""

    def missing(self) -> Mapping[TopicPartition, str]:
        """Return the partitions that should exist but that this origin does not have, each with the evidence as text.
        Raises what `partitions` raises.
        """

    def open(self, keys: Sequence[TopicPartition]) -> list[PartitionOrigin]:
        """List the segments of these partitions. Partitions that this origin does not have are left out. Raises what
        `partitions` raises.
        """
