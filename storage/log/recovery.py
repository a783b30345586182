"""Bringing the segments of a directory back to a whole log.

After a clean shutdown the files are believed. After a crash everything from the recovery point on is checked, because
nothing past it was known to be on the disk; before it, the batches by which producers are remembered:

| what is found                                | below the recovery point            | past it                         |
|----------------------------------------------|-------------------------------------|---------------------------------|
| a whole batch, right checksum, next offset   | kept                                | kept                            |
| anything else                                | `CorruptLog`: data is lost, and the | cut there, and every later      |
|                                              | replica must not serve as if whole  | segment removed                 |
| index entries                                | kept                                | made again from the batches     |
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.primitives import MalformedMessage
from protocol.record_batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from storage.checkpoints.leader_epochs import LeaderEpochs
from storage.files.port import File
from storage.log.log_config import INT64_MAX
from storage.producers.producer_state import ProducerStates
from storage.producers.producer_tail import SILENCE_MS_MAX
from storage.producers.transaction_marker import read_transaction_marker
from storage.segment.batch_run import BatchRun
from storage.segment.segment import Segment

CHUNK_SIZE = 1 << 20
REPORT_EVERY_SIZE = 256 << 20

Report = Callable[[str], None]


class CorruptLog(Exception):
    """Bytes that were once durable are not what they were: the replica must be fenced, never cut.

    DIVERGES: Kafka cuts a log at the first damage in the segments it recovers, flushed or not, and serves the rest;
    what is damaged later it serves.
    """


class DamagedBatch(Exception):
    """No whole batch at a position."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position


class Pieces:
    """A stretch of a file, read piece by piece."""

    __slots__ = ("data", "end_position", "file", "position")

    def __init__(self, file: File, position: int, end_position: int) -> None:
        self.file = file
        self.position = position
        self.end_position = end_position
        self.data = b""

    def reach(self, position: int, size: int) -> int:
        """Have so many bytes from a position in the piece, or all there are; where in the piece the position lies."""
        inside = position - self.position
        if inside + size > len(self.data):
            size = min(max(size, CHUNK_SIZE), self.end_position - position)
            self.data, self.position, inside = self.file.pread(size, position), position, 0
        return inside


def verified_batch(pieces: Pieces, position: int) -> tuple[BatchHeader, int]:
    """The header of the batch at a position and where in the piece the whole of it lies, checksum compared.

    Raises `DamagedBatch` where there is none.
    """
    inside = pieces.reach(position, HEADER_SIZE)
    try:
        header = parse_header(pieces.data, inside)
    except MalformedMessage as error:
        raise DamagedBatch(position, str(error)) from None
    size = header.batch_length + LOG_OVERHEAD
    if position + size > pieces.end_position:
        raise DamagedBatch(position, f"{pieces.end_position - position} bytes of a batch of {size}")
    inside = pieces.reach(position, size)
    if not crc_is_valid(pieces.data, inside, header):
        raise DamagedBatch(position, "checksum mismatch")
    return header, inside


class TailRecovery:
    """Checks batches from some offset to the end of the log and rebuilds from them what is derived of them.

    With `asks_disk` it reads past the page cache. The process before this one may have been killed while a sync failed:
    then the cache shows what the disk never took, and what is written behind that would be lost with it. Only logs that
    promise the disk pay for this; a process that lives to see the failure empties the cache itself.
    """

    def __init__(
        self,
        recovery_point: int,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        report: Report,
        *,
        log_start_offset: int,
        asks_disk: bool,
    ) -> None:
        self.asks_disk = asks_disk
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.producers = producers
        self.epochs = epochs
        self.report = report
        self.next_offset = 0
        self.last_epoch = epochs.latest_epoch

    def recover(self, segment: Segment, next_base_offset: int | None, now_ms: int) -> bool:
        """Recover one segment; False where it was cut, so that all later segments must go. Raises `CorruptLog`.

        What lies at or past the base of the next segment was truncated before that one was made: it goes alone.
        """
        position = self._start_position(segment)
        if self.asks_disk:
            segment.file().evict()
        pieces = Pieces(segment.file(), position, segment.size)
        run = self._begin_run(next_base_offset)
        reported_position = position
        try:
            while position < segment.size:
                position = self._take_plain(segment, run, pieces, position)
                if position - reported_position >= REPORT_EVERY_SIZE:
                    reported_position = position
                    self.report(f"{segment.path('.log')}: {position >> 20} of {segment.size >> 20} MiB recovered")
                if position < segment.size:
                    header, inside = verified_batch(pieces, position)
                    if next_base_offset is not None and header.base_offset >= next_base_offset:
                        self.report(f"{segment.path('.log')}: truncated at offset {next_base_offset} once more")
                        segment.cut(position, now_ms)
                        break
                    self._refuse_disorder(header, position)
                    size = header.batch_length + LOG_OVERHEAD
                    self._take(segment, header, position, pieces.data[inside : inside + size])
                    position += size
        except DamagedBatch as damage:
            if self._is_durable_from_here:
                raise CorruptLog(
                    f"{segment.path('.log')}: {damage}, offset {self.next_offset},"
                    f" but all before offset {self.recovery_point} was flushed"
                ) from damage
            cut_size = segment.size - damage.position
            self.report(f"{segment.path('.log')}: {damage}; cut {cut_size} bytes from offset {self.next_offset} on")
            segment.cut(damage.position, now_ms)
            segment.seal()
            return False
        segment.seal()
        return True

    def _begin_run(self, next_base_offset: int | None) -> BatchRun:
        limit_offset = INT64_MAX if next_base_offset is None else next_base_offset
        return BatchRun(self.next_offset, self.last_epoch, limit_offset, self.producers.map_end_offset)

    def _take_plain(self, segment: Segment, run: BatchRun, pieces: Pieces, position: int) -> int:
        """Take the batches from a position on that need no thought, as far as the piece has them; where they end."""
        inside = pieces.reach(position, HEADER_SIZE)
        segment.begin_run(run)
        run.next_offset, run.leader_epoch = self.next_offset, self.last_epoch
        end = run.take(pieces.data, inside, pieces.position)
        if end == inside:
            return position
        segment.note_run(run)
        for producer_id, (epoch, batches) in run.producers.items():
            self.producers.take_run(producer_id, epoch, batches)
        if run.last_base_offset >= self.producers.map_end_offset:
            self.producers.map_end_offset = run.next_offset
        self.next_offset = run.next_offset
        run.clear()
        return pieces.position + end

    def _take(self, segment: Segment, header: BatchHeader, position: int, batch: bytes) -> None:
        last_offset = header.base_offset + header.last_offset_delta
        segment.note_appended(position, len(batch), last_offset, header.max_timestamp)
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.base_offset >= self.producers.map_end_offset:
            is_marker = header.attributes & CONTROL_BIT and header.producer_id >= 0
            replay_batch(segment, self.producers, header, batch if is_marker else None)
        self.next_offset = last_offset + 1

    def reaches(self, next_base_offset: int, gaps_end_offset: int) -> bool:
        """Whether the next segment goes on where the last one ended.

        Compaction alone leaves gaps between segments, up to some offset (0 where there is none); any other means that
        the end of the last one never came to the disk. Raises `CorruptLog` where it must have been there.
        """
        if self.next_offset == next_base_offset or self.next_offset < next_base_offset <= gaps_end_offset:
            return True
        if self.next_offset < next_base_offset and self._is_durable_from_here and not gaps_end_offset:
            missing = f"offsets {self.next_offset} to {next_base_offset - 1} are missing"
            raise CorruptLog(f"{missing}, but all before offset {self.recovery_point} was flushed")
        return False

    @property
    def _is_durable_from_here(self) -> bool:
        """Whether something that is not deleted was flushed at or past the next offset. A log that lost everything goes
        on at its start, in a segment that begins before it."""
        return max(self.next_offset, self.log_start_offset) < self.recovery_point

    def _start_position(self, segment: Segment) -> int:
        """Where checking begins: the last batch that the index knows to lie below the recovery point, or the start."""
        self.next_offset = segment.base_offset
        if segment.base_offset < self.recovery_point and segment.has_sound_indexes():
            segment.offset_index.truncate_to(self.recovery_point)
            segment.time_index.truncate_to(self.recovery_point)
            segment.transaction_index.truncate_to(self.recovery_point)
            position = segment.offset_index.last_position()
            header = self._header_at(segment, position)
            if (
                header is not None
                and header.base_offset >= segment.base_offset
                and header.base_offset < self.recovery_point
            ):
                self._replay_unverified(segment, position, header.base_offset)
                segment.resume_indexes()
                self.next_offset = header.base_offset
                return position
        segment.reset_indexes()
        segment.transaction_index.truncate_to(self.recovery_point)
        return 0

    def _replay_unverified(self, segment: Segment, end_position: int, end_offset: int) -> None:
        """Producers of the batches that need no checking and that no snapshot covers."""
        if self.producers.map_end_offset < end_offset:
            replay_producers(segment, self.producers, end_position)

    def _header_at(self, segment: Segment, position: int) -> BatchHeader | None:
        try:
            return parse_header(segment.file().pread(HEADER_SIZE, position))
        except MalformedMessage:
            return None

    def _refuse_disorder(self, header: BatchHeader, position: int) -> None:
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            raise DamagedBatch(position, f"offset {header.base_offset} after {self.next_offset - 1}")
        if header.partition_leader_epoch < self.last_epoch and self.next_offset >= self.recovery_point:
            # A segment that a truncation had unlinked, and the crash brought back behind what was appended since.
            raise DamagedBatch(position, f"leader epoch {header.partition_leader_epoch} after {self.last_epoch}")
        self.last_epoch = header.partition_leader_epoch


def replay_batch(
    segment: Segment, producers: ProducerStates, header: BatchHeader, marker_batch: memoryview | bytes | None
) -> None:
    """Feed a stored batch to the producer state, and an abort to the transaction index unless it is there already.

    The bytes are needed of the control batches of producers alone.
    """
    completed = producers.replay(header, None if marker_batch is None else read_transaction_marker(marker_batch))
    if completed is not None and completed.is_aborted:
        known = segment.transaction_index.entries()
        if not known or known[-1].last_offset < completed.last_offset:
            segment.transaction_index.append(producers.aborted(completed))


def replay_producers(segment: Segment, producers: ProducerStates, end_position: int) -> None:
    """Feed the batches that the producer state has not seen to it, up to a position. Checksums are compared of those by
    which producers are remembered then, and of no others. Raises `MalformedMessage`."""
    first_offset = producers.map_end_offset
    for batch_position, header in segment.headers(segment.offset_index.position_at_or_before(first_offset)):
        if batch_position >= end_position:
            break
        if header.base_offset >= producers.map_end_offset:
            is_marker = header.attributes & CONTROL_BIT and header.producer_id >= 0
            batch = segment.file().pread(header.size, batch_position) if is_marker else None
            replay_batch(segment, producers, header, batch)
    try:
        check_remembered(segment, producers, first_offset, end_position)
    except DamagedBatch as damage:
        raise MalformedMessage(f"{segment.path('.log')}: {damage}") from damage


def check_remembered(segment: Segment, producers: ProducerStates, first_offset: int, end_position: int) -> None:
    """They tell what a client repeats from what is new. Raises `DamagedBatch`."""
    since_ms = max((entry.last_timestamp for entry in producers.entries.values()), default=0) - SILENCE_MS_MAX
    remembered = {
        batch.last_offset
        for entry in producers.entries.values()
        if entry.last_timestamp >= since_ms
        for batch in entry.batches
        if batch.last_offset >= first_offset
    }
    if not remembered:
        return
    file = segment.file()
    for position, header in segment.headers(segment.offset_index.position_at_or_before(min(remembered))):
        if position >= end_position:
            return
        if header.last_offset in remembered:
            verified_batch(Pieces(file, position, position + header.size), position)
