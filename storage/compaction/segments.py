"""The segments of a cleaning: the source segments, read in pieces of whole batches with valid checksums, and the
cleaned segment, written in their place under names that end in `.cleaned`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple, Protocol

from moldau.protocol.compression import expand
from moldau.protocol.old_messages import upgrade_messages
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    OLD_MESSAGE_SIZE_MIN,
    BatchHeader,
    crc_is_valid,
    may_be_old_message,
    parse_header,
)
from moldau.protocol.record_reader import RECORDS_SIZE_MAX
from moldau.protocol.record_stream import record_runs
from moldau.storage.compaction.request import LogChanged
from moldau.storage.files.log_paths import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from moldau.storage.files.port import File, FileSystem
from moldau.storage.log.segment_swap import SegmentSize
from moldau.storage.segment.sparse_index import NO_TIMESTAMP, OffsetIndex, TimeIndex
from moldau.storage.segment.transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex

LENGTH = Struct(">8xi")
"""The struct of the first 12 bytes of a batch header: eight bytes of the base offset are skipped, then comes the length
of the batch."""
PIECE_SIZE_MAX = 1 << 20
"""The largest piece (bytes) in which records are decompressed.

Nearly every batch fits into one piece, so that pieces need not be joined.
"""
WRITE_BACK_SIZE = 8 << 20
"""The bytes of a cleaned segment after which the kernel begins to write them to the disk. So the sync at the end is
short, and the writes of other files do not wait behind a whole segment."""
RUN_SIZE_MAX = 4 << 20
"""The largest run in bytes. A batch whose records expand to more bytes is read in several runs."""


class SourceSegment:
    """A segment to be cleaned, as the request describes it. `batch_pieces` raises `LogChanged` if its .log file has
    changed since."""

    __slots__ = ("_directory", "_fs", "base_offset", "size")

    def __init__(self, fs: FileSystem, directory: str, known: SegmentSize) -> None:
        self._fs = fs
        self._directory = directory
        self.base_offset, self.size = known

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}"

    def file_size(self, suffix: str) -> int:
        """The size in bytes of the segment's file with a suffix; 0 if the file does not exist."""
        path = self.path(suffix)
        return self._fs.file_size(path) if self._fs.exists(path) else 0

    def position_at_or_before(self, offset: int) -> int:
        """The position (bytes) in the .log file of a batch at or before the one that contains `offset`.
        Raises OSError."""
        path = self.path(OFFSET_INDEX_SUFFIX)
        if offset <= self.base_offset or not self._fs.exists(path):
            return 0
        index = OffsetIndex(self._fs, path, self.base_offset, read_only=True)
        try:
            return min(index.position_at_or_before(offset), self.size) if index.is_sound() else 0
        finally:
            index.entries.close()

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """All entries of the segment's transaction index. Raises OSError, and `MalformedMessage` if the file is
        damaged."""
        try:
            return TransactionIndex(self._fs, self.path(TRANSACTION_INDEX_SUFFIX)).entries()
        except CorruptTransactionIndex as damage:
            raise MalformedMessage(str(damage)) from damage

    def batch_pieces(self, position: int, piece_size: int) -> Iterator[memoryview]:
        """Yield the segment's .log file from `position` on, in pieces of whole batches, as `file_pieces` does."""
        return file_pieces(self._fs, self.path(LOG_SUFFIX), self.size, position, piece_size)


def file_pieces(fs: FileSystem, path: str, size: int, position: int, piece_size: int) -> Iterator[memoryview]:
    """Yield the batches of a .log file of `size` bytes from `position` on, in pieces of whole batches. A piece has
    about `piece_size` bytes, or one larger batch.

    Raises OSError, `LogChanged` if the file has changed, and `MalformedMessage` if it does not consist of whole
    batches.
    """
    try:
        file = fs.open(path, read_only=True)
    except FileNotFoundError:
        raise LogChanged(path) from None
    try:
        if file.size() != size:
            raise LogChanged(path)
        read_size = piece_size
        while position < size:
            piece = _piece(file, size, position, read_size)
            yield piece
            position += len(piece)
            read_size = max(piece_size, _spacious(piece))
    except MalformedMessage as damage:
        if not fs.exists(path) or fs.file_size(path) != size:
            raise LogChanged(path) from damage
        raise MalformedMessage(f"{path}: {damage}") from damage
    finally:
        file.close()


def _spacious(piece: memoryview) -> int:
    """The number of bytes to read for a batch that is about as large as the first batch of a piece, so that a batch
    larger than a piece is rarely read twice."""
    (length,) = LENGTH.unpack_from(piece)
    size = int(length) + LOG_OVERHEAD
    return size + size // 8


def _piece(file: File, size: int, position: int, piece_size: int) -> memoryview:
    piece = file.pread(min(max(piece_size, HEADER_SIZE), size - position), position)
    whole_size = whole_batches_size(piece)
    if not whole_size:
        wanted_size = parse_header(piece, 0, True).size
        if position + wanted_size > size:
            raise MalformedMessage(f"{size - position} bytes at position {position} of a batch of {wanted_size}")
        piece = file.pread(wanted_size, position)
        whole_size = whole_batches_size(piece)
        if not whole_size:
            raise MalformedMessage(f"the file became shorter at position {position}")
    return memoryview(piece)[:whole_size]


def batches_between(piece: memoryview, first_offset: int, end_offset: int) -> memoryview:
    """Return the batches of a piece that have an offset in [first_offset, end_offset). The first of them may begin
    before `first_offset`, because a full offset map may end within a batch. Raises `MalformedMessage` if a header is
    wrong.
    """
    at, start, end = 0, len(piece), len(piece)
    while at < len(piece):
        header = parse_header(piece, at, True)
        # The first offset in a compressed message of format 0 or 1 is before its base offset, and is not known here.
        if header.base_offset >= end_offset and not (header.magic != MAGIC and header.is_compressed):
            end = at
            break
        if header.last_offset >= first_offset:
            start = min(start, at)
        at += header.size
    return piece[min(start, end) : end]


def whole_batches_size(piece: bytes) -> int:
    """The number of bytes of the whole batches at the beginning of a piece. Raises `MalformedMessage` if no batch can
    begin there.
    """
    at, end = 0, len(piece)
    while at + HEADER_SIZE <= end or (at + OLD_MESSAGE_SIZE_MIN <= end and may_be_old_message(piece, at)):
        (length,) = LENGTH.unpack_from(piece, at)
        if length < (OLD_MESSAGE_SIZE_MIN - LOG_OVERHEAD if may_be_old_message(piece, at) else LENGTH_MIN):
            raise MalformedMessage(f"a batch of length {length}")
        if at + length + LOG_OVERHEAD > end:
            break
        at += length + LOG_OVERHEAD
    return at


def verified_batches(piece: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a piece with their headers. A message of format 0 or 1 becomes a batch of format 2, in
    memory of its own.

    Raises `MalformedMessage` if a header or a checksum is wrong. A batch that is written anew gets a new checksum,
    which must not hide damage.

    DIVERGES: Apache Kafka keeps the format of the messages that compaction keeps. Here they become batches v2, with the
    same offsets and timestamps; readers of format 0 then see a timestamp of -1 as create time.
    """
    at = 0
    while at < len(piece):
        header = parse_header(piece, at, True)
        if not crc_is_valid(piece, at, header) or header.last_offset_delta < 0 or header.records_count < 0:
            raise MalformedMessage(f"the batch at offset {header.base_offset} is damaged")
        if header.magic == MAGIC:
            yield header, piece[at : at + header.size]
        else:
            newer, batch = upgrade_messages(piece, at, header, size_max=RECORDS_SIZE_MAX)
            yield newer, memoryview(batch)
        at += header.size


class ExpansionLimits(Protocol):
    """The limits of a log for the decompressed records of one batch."""

    @property
    def expanded_bytes_max(self) -> int:
        """The most bytes of a batch's decompressed records."""

    @property
    def expanded_record_bytes_max(self) -> int:
        """The most bytes of one record of a compressed batch."""


def record_runs_of(limits: ExpansionLimits, header: BatchHeader, batch: memoryview) -> Iterable[tuple[BytesLike, int]]:
    """Return the records of a batch, decompressed, in runs: the encoded bytes of whole records, and their number.
    Raises `MalformedMessage`, and `RecordSizeExceeded` for a record of a compressed batch above the limit of the topic.

    Nearly every batch is one run. A batch that expands beyond `RUN_SIZE_MAX` comes in several runs, so that it is never
    in memory as a whole.
    """
    stored = batch[HEADER_SIZE:]
    if not header.is_compressed:
        return ((stored, header.records_count),)
    record_size_max = limits.expanded_record_bytes_max
    size_max = limits.expanded_bytes_max
    pieces = iter(expand(header.codec, stored, size_max=size_max, piece_size_max=PIECE_SIZE_MAX, is_stored=True))
    first: list[BytesLike] = []
    size = 0
    for piece in pieces:
        first.append(piece)
        size += len(piece)
        if size > RUN_SIZE_MAX:
            return record_runs(chain(first, pieces), header.records_count, record_size_max)
    body = first[0] if len(first) == 1 else b"".join(first)
    if size > record_size_max:
        return record_runs((body,), header.records_count, record_size_max)
    return ((body, header.records_count),)


class CleanedBatch(NamedTuple):
    """A batch for the cleaned segment, with the last offset and the maximum timestamp (ms) that the indexes need."""

    data: BytesLike
    last_offset: int
    max_timestamp: int


class CleanedSegment:
    """The files of one cleaned segment while it is written. The constructor removes files that an earlier attempt left
    under the same names. It raises OSError."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_directory",
        "_file",
        "_fs",
        "_index_interval_bytes",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_time_index",
        "_transaction_index",
        "_written_back_size",
        "base_offset",
        "size",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self._index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self.size = 0
        self._written_back_size = 0
        self._bytes_since_index_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._remove_files()
        self._file = fs.open(self.path(LOG_SUFFIX), create=True)
        self._offset_index = OffsetIndex(fs, self.path(OFFSET_INDEX_SUFFIX), base_offset)
        self._time_index = TimeIndex(fs, self.path(TIME_INDEX_SUFFIX), base_offset)
        self._transaction_index = TransactionIndex(fs, self.path(TRANSACTION_INDEX_SUFFIX))
        self._offset_index.entries.create()
        self._time_index.entries.create()

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"

    def append(self, batches: Sequence[CleanedBatch]) -> None:
        """Write several batches with one write, and note them in the indexes. Raises OSError."""
        self._file.append([each.data for each in batches])
        for each in batches:
            self._note(len(each.data), each.last_offset, each.max_timestamp)
        begun = self._written_back_size
        if self.size - begun >= WRITE_BACK_SIZE:
            self._written_back_size = self.size
            self._file.begin_write_back(self.size - begun, begun)

    def add_aborted_transaction(self, aborted: AbortedTransaction) -> None:
        """Enter an aborted transaction, whose marker is kept in this segment, in the transaction index.
        Raises OSError."""
        self._transaction_index.append(aborted)

    def _note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add a batch to the indexes, by the same rule as an append (`Segment.note_appended`)."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._bytes_since_index_entry = 0
            self._offset_index.append(last_offset, self.size)
            self._time_index.append_if_later(self._max_timestamp, self._offset_of_max_timestamp)
        self._bytes_since_index_entry += size
        self.size += size

    def finish(self) -> tuple[str, ...]:
        """Write the rest of the indexes, sync all files and close them. Returns the suffixes of the files that exist.
        Raises OSError."""
        if self._max_timestamp >= 0:
            self._time_index.append_if_later(self._max_timestamp, self._offset_of_max_timestamp)
        self._file.sync()
        for index in (self._offset_index.entries, self._time_index.entries):
            index.write_pending()
            index.file().sync()
        opened = self._transaction_index.open_file()
        if opened is not None:
            opened.file.sync()
        self.close()
        return tuple(suffix for suffix in SEGMENT_SUFFIXES if self._fs.exists(self.path(suffix)))

    def close(self) -> None:
        """Close the files; closing twice is allowed."""
        self._file.close()
        self._offset_index.entries.close()
        self._time_index.entries.close()
        self._transaction_index.close()

    def discard(self) -> None:
        """Close and remove the files of the cleaned segment. Raises OSError."""
        self.close()
        self._remove_files()

    def _remove_files(self) -> None:
        for suffix in SEGMENT_SUFFIXES:
            if self._fs.exists(self.path(suffix)):
                self._fs.unlink(self.path(suffix))
