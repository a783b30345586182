"""Reads a log from its files, batch by batch. A broker may write, clean or delete the files at the same time."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.backup.sources.port import LogDeleted, LogStartMoved
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    BatchHeader,
    may_be_old_message,
    parse_header,
)
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import File, FileSystem
from moldau.storage.segment.batch_scan import BatchPlace, iterate_batch_headers
from moldau.storage.segment.segment_listing import ListedSegment, list_segments, locate_batch, offset_index_of

READ_SIZE: Final = 1 << 20
"""The maximum bytes of one read; a larger batch is read whole. With larger reads (4 MiB) the bytes leave the
processor's caches before they are checked, which takes twice the time.
"""
LISTINGS_MAX: Final = 10
"""The maximum number of attempts to list a directory. A file may be deleted or replaced before it is opened."""


class LogFiles:
    """The `LogReader` of a partition's directory."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._file: File | None = None
        self._position = 0

    def read(self, offset: int, taken: int) -> bytes:
        """Read batches from the one that contains `offset`, or else from the first one after it. Raises
        `LogStartMoved`, `LogDeleted`, OSError, and `MalformedMessage` if no batch begins at the position.
        """
        self._position += taken
        for _ in range(LISTINGS_MAX):
            if self._file is not None:
                data = _batches_at(self._file, self._position)
                if data:
                    return data
                self.close()
            if not self._open(offset):
                return b""
        raise FileNotFoundError(f"{self._directory}: its files changed {LISTINGS_MAX} times while they were read")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, offset: int) -> bool:
        """Open the segment that has the first batch at or after an offset. Returns False if there is no such batch."""
        for _ in range(LISTINGS_MAX):
            try:
                return self._open_listed(list_segments(self._fs, self._directory), offset)
            except FileNotFoundError:
                if not self._fs.exists(self._directory):
                    raise LogDeleted(f"{self._directory} was deleted while it was read") from None
        raise FileNotFoundError(f"{self._directory}: its files went {LISTINGS_MAX} times while they were listed")

    def _open_listed(self, segments: list[ListedSegment], offset: int) -> bool:
        if segments and offset < segments[0].base_offset:
            raise LogStartMoved(segments[0].base_offset)
        for segment in segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= offset:
                continue
            file = self._fs.open(segment.path(), read_only=True)
            try:
                place = _located(self._fs, segment, offset)
            except BaseException:
                file.close()
                raise
            if place is not None:
                self._file, self._position = file, place.position
                return True
            file.close()
        return False


def _located(fs: FileSystem, segment: ListedSegment, offset: int) -> BatchPlace | None:
    """Return what `locate_batch` returns, if the index and the file that it reads are both those that were listed.
    Raises FileNotFoundError if another file has taken the name of the segment since then, besides OSError and
    `MalformedMessage`.

    A cleaning renames the old files before it renames the new ones. While the segment has the listed file, its index is
    the one of that file, too.
    """
    try:
        place = locate_batch(fs, segment, offset)
    except MalformedMessage:
        _refuse_replaced(fs, segment)
        raise
    _refuse_replaced(fs, segment)
    return place


def _refuse_replaced(fs: FileSystem, segment: ListedSegment) -> None:
    path, listed = segment.path(), segment.stamp
    if listed is not None and fs.stamp(path).inode != listed.inode:
        raise FileNotFoundError(f"{path} was replaced")


def _batches_at(file: File, position: int) -> bytes:
    """Read at least one whole batch of a segment. Returns empty bytes at the end of the segment. Raises
    `MalformedMessage` and OSError.
    """
    data = file.pread(READ_SIZE, position)
    if len(data) < HEADER_SIZE and not may_be_old_message(data, 0):
        return b""
    size = parse_header(data, 0, True).batch_length + LOG_OVERHEAD
    if size <= len(data):
        return data
    data = file.pread(size, position)
    return data if len(data) == size else b""


class FilesEnd(NamedTuple):
    """The end of the log in a partition's directory. Of two ends, that of the newer log is greater, as in Raft."""

    leader_epoch: int
    """The leader epoch of the last whole batch; -1 if there is none."""
    offset: int
    """The offset after the last whole batch. Without batches it is the base offset of the last segment, and 0 without
    segments."""


def end_of_files(fs: FileSystem, directory: str) -> FilesEnd:
    """Return the end of the log in a partition's directory. Raises OSError and `MalformedMessage`."""
    for _ in range(LISTINGS_MAX - 1):
        try:
            return _end_of_listed(fs, list_segments(fs, directory))
        except FileNotFoundError:
            continue
    return _end_of_listed(fs, list_segments(fs, directory))


def _end_of_listed(fs: FileSystem, segments: list[ListedSegment]) -> FilesEnd:
    for segment in reversed(segments):
        index = offset_index_of(fs, segment)
        opened = OpenFile(fs.open(segment.path(), read_only=True))
        last: BatchHeader | None = None
        for _, header in iterate_batch_headers(opened.file, index.last_position() if index else 0, segment.size):
            last = header
        _refuse_replaced(fs, segment)
        if last is not None:
            return FilesEnd(last.partition_leader_epoch, last.next_offset)
    return FilesEnd(NO_LEADER_EPOCH, segments[-1].base_offset if segments else 0)
