"""Writes the log of a partition into the log directories of its replicas, as segments without indexes.

When the node starts, it rebuilds indexes, leader epochs and producer states from the batches.

Offsets may be missing between two batches: compaction, or the sample of a capture, has removed their records. The node
takes a gap between two segments for a loss, and removes what follows. So each segment begins where the one before it
ends, and a gap at the end of the log is filled by an empty batch, as the log cleaner keeps one. So is the part of a gap
that goes beyond the offsets of one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import HEADER_SIZE, NO_LEADER_EPOCH, BatchHeader, parse_header
from moldau.protocol.record_builder import build_batch
from moldau.storage.checkpoints.partition_metadata import write_topic_id
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.storage.files.port import File, FileSystem, make_durable_directory

SEGMENT_BYTES_MAX: Final = 1 << 30
"""The maximum size of a restored segment in bytes. The topic's own limit applies if it is smaller."""
SEGMENT_OFFSETS_MAX: Final = (1 << 31) - 1
"""The largest distance of an offset from the base offset of its segment, because index entries have 31 bits for it."""
WRITE_BUFFER_SIZE: Final = 1 << 20


class BatchLocation(NamedTuple):
    """Where a batch of the restored log is: the file name of its segment, and the position in that file."""

    segment: str
    position: int


class RestoredLogWriter:
    """Writes the log of one partition for a restore. Every method blocks and raises OSError.

    A restore has a writer for each partition until its end: `release` takes its open files and its memory.
    """

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], topic_id: bytes, start_offset: int, segment_bytes: int
    ) -> None:
        """`directories`: the partition's directory of each replica; none of them exists yet. `start_offset`: the log
        start offset."""
        self._fs = fs
        self._directories = directories
        self._next_offset = start_offset
        self._segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        self._files: list[File] = []
        self._segment = ""
        """The file name of the last segment; empty if there is none yet."""
        self._base_offset = 0
        self._leader_epoch = NO_LEADER_EPOCH
        self._size = 0
        self._buffer: list[BytesLike] = []
        self._buffered = 0
        self._noted: dict[int, BatchLocation] = {}
        """The places of the batches that `rewrite_batch` may replace, by base offset."""
        for directory in directories:
            make_durable_directory(fs, directory)
            write_topic_id(fs, directory, topic_id)

    def append_batch(self, header: BatchHeader, batch: BytesLike, *, is_noted: bool = False) -> None:
        """Append a batch to the log of every replica. With `is_noted` its position is kept, so that `rewrite_batch` can
        replace it later.
        """
        while header.last_offset - self._next_offset > SEGMENT_OFFSETS_MAX:
            self._fill_gap(header.base_offset, header.partition_leader_epoch)
        is_full = self._size and self._size + header.size > self._segment_bytes
        if not self._segment or is_full or header.last_offset - self._base_offset > SEGMENT_OFFSETS_MAX:
            self._roll(min(self._next_offset, header.base_offset))
        if is_noted:
            self._noted[header.base_offset] = BatchLocation(self._segment, self._size)
        self._buffer.append(batch)
        self._buffered += header.size
        self._size += header.size
        self._next_offset = header.next_offset
        self._leader_epoch = header.partition_leader_epoch
        if self._buffered >= WRITE_BUFFER_SIZE:
            self._flush()

    def rewrite_batch(self, offset: int, changed: Callable[[BatchHeader, bytes], bytes]) -> None:
        """Replace the batch at `offset` by the result of `changed`, which must have the same size. The batch must have
        been appended with `is_noted`.
        """
        self._flush()
        segment, position = self._noted[offset]
        for directory in self._directories:
            file = self._fs.open(f"{directory}/{segment}")
            try:
                header = parse_header(file.pread(HEADER_SIZE, position))
                batch = changed(header, file.pread(header.size, position))
                assert len(batch) == header.size
                file.pwrite(batch, position)
                file.sync()
            finally:
                file.close()

    def release(self) -> None:
        """Sync what is written, close the files and drop the buffer. The next batch opens the files again."""
        self._flush()
        for file in self._files:
            file.sync()
        self.close()

    def finish(self, end_offset: int) -> None:
        """Sync the log. If its last batch ends before `end_offset`, fill the gap; if it has no batch, its only segment
        is empty and begins at `end_offset`."""
        if not self._segment:
            self._roll(end_offset)
            self._next_offset = end_offset
        while self._next_offset < end_offset:
            self._fill_gap(end_offset, self._leader_epoch)
        self.release()
        for directory in self._directories:
            self._fs.sync_directory(directory)

    def close(self) -> None:
        """Close the segment files that are open."""
        files, self._files = self._files, []
        for file in files:
            file.close()

    def _fill_gap(self, end_offset: int, leader_epoch: int) -> None:
        """Append an empty batch from the end of the log to `end_offset`, or to the largest offset that one segment can
        have."""
        base_offset = self._next_offset
        last_offset = min(end_offset - 1, base_offset + SEGMENT_OFFSETS_MAX)
        batch = build_batch((), base_offset=base_offset, last_offset=last_offset, partition_leader_epoch=leader_epoch)
        self.append_batch(parse_header(batch), batch)

    def _roll(self, base_offset: int) -> None:
        self.release()
        self._base_offset, self._size = base_offset, 0
        self._segment = offset_name(base_offset, LOG_SUFFIX)
        self._open_files(create=True)

    def _open_files(self, *, create: bool = False) -> None:
        for directory in self._directories:
            self._files.append(self._fs.open(f"{directory}/{self._segment}", create=create))

    def _flush(self) -> None:
        buffer, self._buffer, self._buffered = self._buffer, [], 0
        if buffer:
            if not self._files:
                self._open_files()
            for file in self._files:
                file.append(buffer)
