"""The aborted transactions of a slice, from the markers that follow in the files.

A segment without an aborted transaction has no transaction index, and so has one whose index was lost. A task that
reads committed records of files therefore looks for the marker itself, wherever a transactional batch is not in an
index: it walks over the headers from that batch on, into the following segments, and remembers every marker that it
passes. So each header is read at most twice, and only in topics with transactions.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator

from moldau.protocol.record_batch import BatchHeader
from moldau.spark_jobs.origins.open_transactions import is_abort
from moldau.spark_jobs.origins.port import SegmentFile, Slice
from moldau.spark_jobs.refusals import SegmentReplaced
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.segment.batch_scan import walk_headers
from moldau.storage.segment.segment_listing import list_segments


class AbortMarkers:
    """The markers in the files of a partition, from the first batch on that was looked up."""

    def __init__(self, wanted: Slice) -> None:
        self._wanted = wanted
        self._markers: dict[int, tuple[list[int], list[bool]]] = {}
        """The offsets of the markers of a producer, and whether each aborts its transaction."""
        self._walk: Iterator[None] | None = None

    def ends_in_abort(self, position: int, header: BatchHeader) -> bool:
        """Whether the transaction of a batch, which begins at a position of the slice's file, was aborted. Batches are
        looked up in the order of their offsets. Raises `DataLost`, `MalformedMessage` and OSError.
        """
        if self._walk is None:
            self._walk = self._walked(position)
        while True:
            offsets, aborts = self._markers.get(header.producer_id, ((), ()))
            slot = bisect_right(offsets, header.base_offset)
            if slot < len(offsets):
                return aborts[slot]
            if next(self._walk, self) is self:  # No marker: the transaction is not aborted below the high watermark.
                return False

    def _walked(self, position: int) -> Iterator[None]:
        """Walk over the headers, and stop after each marker that was noted."""
        segment = self._wanted.segment
        file = self._wanted.source.open(self._wanted)
        try:
            yield from self._markers_in(file, position, file.size())
        finally:
            file.close()
        files = LocalFiles()
        for listed in list_segments(files, posixpath.dirname(segment.name)):
            if listed.base_offset > segment.start_offset:
                try:
                    following = files.open(listed.path(), read_only=True)
                except FileNotFoundError:
                    raise SegmentReplaced(
                        f"{self._wanted}: {listed.path()} went while the markers of transactions were looked for"
                    ) from None
                try:
                    yield from self._markers_in(following, 0, following.size())
                finally:
                    following.close()

    def _markers_in(self, file: SegmentFile, position: int, end_position: int) -> Iterator[None]:
        for found, header in walk_headers(file, position, end_position):
            if header.is_control and header.is_transactional:
                offsets, aborts = self._markers.setdefault(header.producer_id, ([], []))
                offsets.append(header.base_offset)
                aborts.append(is_abort(file.pread(header.size, found)))
                yield
