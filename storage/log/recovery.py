"""Recovery after a crash: checking the segments from the recovery point on, and rebuilding the state that is derived
from them.

After a clean shutdown the files are trusted and nothing here runs (see `storage/log/loading.py`). After a crash nothing
at or past the recovery point is known to be on the disk, so every batch from there on is read and checked:

| what is found                                | below the recovery point            | at or past it                   |
|----------------------------------------------|-------------------------------------|---------------------------------|
| a whole batch, right checksum, next offset   | kept                                | kept                            |
| an incomplete end: no whole batch follows    | `CorruptLog`: flushed data is lost, | the segment is cut there        |
|                                              | and the replica must not serve the  |                                 |
|                                              | rest as if it were whole            |                                 |
| anything else: whole batches follow          | `CorruptLog`                        | after a loss of power the       |
|                                              |                                     | segment is cut there, and all   |
|                                              |                                     | later ones are removed;         |
|                                              |                                     | otherwise `CorruptLog`          |
| index entries                                | kept                                | made again from the batches     |

If the process was only killed, no written data is lost; and if the recovery point could not be read, it is not known
what was flushed. So in both cases whole batches after a damaged one were written earlier, and are never removed.

The only replica of a partition cannot fetch lost records from another one, so the rest is served. If its end or a
segment is missing, recovery reports that, and the log continues after the missing offsets, so that no offset is used
twice. An incomplete batch at its end is cut after a clean stop: the file became shorter since. After a crash such a
batch was flushed and is damaged: `CorruptLog` keeps its bytes.

Below the recovery point, only the batches that the producer state remembers are checked
(`storage/log/producer_replay.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, parse_header
from moldau.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from moldau.storage.log.producer_replay import replay_batch, replay_producers, replay_transactional
from moldau.storage.producers.producer_state import BATCHES_KEPT, ProducerStates
from moldau.storage.segment.batch_run import BatchRun
from moldau.storage.segment.batch_scan import DamagedBatch, FilePieces, verified_batch, whole_batch_after
from moldau.storage.segment.segment import Segment

PROGRESS_INTERVAL_BYTES = 16 << 20
INT32_MAX = (1 << 31) - 1
"""The largest distance of an offset from the base offset of its segment, because index entries have 31 bits for it."""
FAR_DELTA = INT32_MAX - (1 << 24)
"""The distance from the base offset of the segment from which on recovery checks batches one by one and not in runs."""

RecoveryReport = Callable[[str], None]
"""A callback for the log of the broker: called with a sentence on what recovery found and what it did."""
RecoveryProgress = Callable[[int, int], None]
"""A callback for the progress of recovery: called from time to time with the bytes that were checked, and the bytes to
check in total."""


class CorruptLog(Exception):
    """Flushed bytes differ from what was written. The replica must be fenced, and its log must not be truncated.

    DIVERGES: Kafka truncates a log at the first damage in the segments that it recovers, flushed or not, and serves the
    rest; it also serves batches that are damaged later.
    """


class TailRecovery:
    """Checks the batches from a position to the end of the log, segment by segment, and rebuilds the state that is
    derived from them.

    `asks_disk`: read past the page cache. If a process is killed while a sync fails, the page cache still shows bytes
    that the disk never took, and batches that are written after these bytes would be lost with them. A process that
    sees the failed sync evicts the cache itself (`sync_or_evict`). Only logs that flush before acknowledging are read
    from the disk.

    `flushed_end_offset`: the offset up to which the log is known to be flushed, at least the recovery point. `size`:
    the bytes of all segments that will be recovered, for `checked`. `may_cut_batches`: written batches may be lost, so
    whole batches after a damaged one need not be those that were acknowledged. `is_only_replica`, `may_cut_flushed`:
    see the docstring of the module.
    """

    def __init__(
        self,
        recovery_point: int,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        report: RecoveryReport,
        checked: RecoveryProgress,
        *,
        size: int,
        log_start_offset: int,
        asks_disk: bool,
        may_cut_batches: bool,
        is_only_replica: bool,
        may_cut_flushed: bool,
        flushed_end_offset: int,
    ) -> None:
        self.flushed_end_offset = flushed_end_offset
        self.may_cut_batches = may_cut_batches
        self.is_only_replica = is_only_replica
        self.may_cut_flushed = may_cut_flushed
        self.reads_past_page_cache = asks_disk
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.producers = producers
        self.epochs = epochs
        self.report = report
        self._checked = checked
        self._size = size
        self._earlier_size = 0
        self.next_offset = 0
        """The offset after the last batch that was checked."""
        self.last_epoch = UNDEFINED_EPOCH
        """The leader epoch of the last batch that was checked. The next batch cannot have an earlier one."""

    def recover_segment(self, segment: Segment, later: Sequence[Segment], now_ms: int) -> bool:
        """Recover one segment. Returns False if it was truncated because of damage: the caller must then remove all
        later segments.

        Batches at or past the base offset of the next segment were truncated before that segment was created, and a
        crash brought them back. They are removed again, and the next segment is kept. Raises `CorruptLog` and OSError.
        """
        next_base_offset = later[0].base_offset if later else None
        position = self._start_position(segment)
        if self.reads_past_page_cache:
            # The page cache may show bytes that a failed sync did not write; see the docstring of the class.
            segment.file().evict()
        pieces = FilePieces(segment.file(), position, segment.size)
        run = self._begin_run(segment, next_base_offset)
        reported_position = position
        try:
            while position < segment.size:
                position = self._walk_plain(segment, run, pieces, position)
                if position - reported_position >= PROGRESS_INTERVAL_BYTES:
                    reported_position = position
                    self._checked(self._earlier_size + position, self._size)
                if position < segment.size:
                    header, inside = verified_batch(pieces, position)
                    if next_base_offset is not None and header.base_offset >= next_base_offset:
                        self.report(
                            f"{segment.path('.log')}: removed the batches from offset {next_base_offset} on again:"
                            " they were truncated before the crash"
                        )
                        segment.truncate_file(position, now_ms)
                        break
                    self._refuse_disorder(segment, header, position)
                    size = header.batch_length + LOG_OVERHEAD
                    self._note_batch(segment, header, position, pieces.data[inside : inside + size])
                    position += size
        except DamagedBatch as damage:
            self._cut(segment, damage, later, now_ms)
            return False
        segment.finish_indexes()
        self._earlier_size += segment.size
        self._checked(self._earlier_size, self._size)
        return True

    def _cut(self, segment: Segment, damage: DamagedBatch, later: Sequence[Segment], now_ms: int) -> None:
        """Truncate a segment at its first damage, or raise `CorruptLog`: the table in the docstring of the module says
        which."""
        found = f"{segment.path('.log')}: {damage}, offset {self.next_offset}"
        is_durable = self._is_durable_from_here
        if is_durable and not self.may_cut_flushed:
            raise CorruptLog(
                f"{found}, although everything before offset {self.flushed_end_offset} was flushed"
            ) from damage
        if is_durable or not self.may_cut_batches:
            following = self._batch_behind(segment, damage.position, later)
            if following is not None:
                raise CorruptLog(f"{found}, although whole batches follow from offset {following} on") from damage
        cut_size = segment.size - damage.position
        removed = sum(each.size for each in later)
        also = f" and the {len(later)} later segments of {removed} bytes" if removed else ""
        why = "" if is_durable else ", which were not flushed before the crash"
        self.report(
            f"{segment.path('.log')}: {damage}; cut {cut_size} bytes from offset {self.next_offset} on{also}{why}"
        )
        segment.truncate_file(damage.position, now_ms)
        segment.finish_indexes()

    def _batch_behind(self, segment: Segment, position: int, later: Sequence[Segment]) -> int | None:
        """Return the base offset of the first whole batch after a damaged position, in this segment or a later one.
        Return None if no whole batch follows. Raises OSError."""
        for each, start in ((segment, position), *((each, 0) for each in later)):
            found = whole_batch_after(each.file(), start, each.size, self.next_offset)
            if found is not None:
                return found
        return None

    def _begin_run(self, segment: Segment, next_base_offset: int | None) -> BatchRun:
        far_offset = segment.base_offset + FAR_DELTA
        limit_offset = far_offset if next_base_offset is None else min(far_offset, next_base_offset)
        return BatchRun(self.next_offset, self.last_epoch, limit_offset, self.producers.map_end_offset, BATCHES_KEPT)

    def _walk_plain(self, segment: Segment, run: BatchRun, pieces: FilePieces, position: int) -> int:
        """Check and note the plain batches from `position` on, for as long as `pieces` has them. A plain batch is one
        that `BatchRun.check_batches` can check in a run. Returns the position after the last one."""
        inside = pieces.load_range(position, HEADER_SIZE)
        segment.start_batch_run(run)
        run.next_offset, run.leader_epoch = self.next_offset, self.last_epoch
        end = run.check_batches(pieces.data, inside, pieces.position)
        if end == inside:
            return position
        segment.add_batch_run(run)
        for producer_id, (epoch, batches) in run.producers.items():
            self.producers.note_batches(producer_id, epoch, batches)
        replay_transactional(segment, self.producers, run.transactional)
        if run.next_offset > self.producers.map_end_offset:
            self.producers.map_end_offset = run.next_offset
        self.next_offset = run.next_offset
        run.clear()
        return pieces.position + end

    def _note_batch(self, segment: Segment, header: BatchHeader, position: int, batch: bytes) -> None:
        """Note one checked batch in the indexes, the leader epochs and the producer state."""
        last_offset = header.base_offset + header.last_offset_delta
        segment.note_appended(position, len(batch), last_offset, header.max_timestamp)
        # Epochs past the recovery point are taken from the batches: the checkpoint may not have been written since.
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.next_offset > self.producers.map_end_offset:
            is_marker = header.attributes & CONTROL_BIT and header.producer_id >= 0
            replay_batch(segment, self.producers, header, batch if is_marker else None)
        self.next_offset = last_offset + 1

    def may_keep_next_segment(self, later: Sequence[Segment], gaps_end_offset: int) -> bool:
        """Whether the next segment and the later ones may be kept, because the next one begins where the last one ends.

        Compaction leaves gaps up to `gaps_end_offset` (0 without compaction). Any other gap means a lost end of the
        last segment, or a lost segment. If flushed or later records would be lost, the only replica reports the gap and
        keeps the segments, and any other replica raises `CorruptLog`.
        """
        next_base_offset = later[0].base_offset
        if self.next_offset == next_base_offset or self.next_offset < next_base_offset <= gaps_end_offset:
            return True
        if self.next_offset > next_base_offset:
            return False
        is_durable = self._is_durable_from_here and not gaps_end_offset
        following = None if self.may_cut_batches else self._batch_behind(later[0], 0, later[1:])
        if not is_durable and following is None:
            return False
        missing = f"{later[0].path('.log')}: the offsets from {self.next_offset} to {next_base_offset - 1} are missing"
        if self.is_only_replica:
            self.report(f"{missing} before it")
            return True
        if following is None:
            raise CorruptLog(f"{missing}, although everything before offset {self.flushed_end_offset} was flushed")
        raise CorruptLog(f"{missing}, although whole batches follow from offset {following} on")

    @property
    def _is_durable_from_here(self) -> bool:
        """Whether the log was flushed past the current offset, so that damage here is a loss of flushed data. The log
        start offset counts as flushed, because a log that lost all batches continues at its start offset.
        """
        return max(self.next_offset, self.log_start_offset) < self.flushed_end_offset

    def _start_position(self, segment: Segment) -> int:
        """Return the position at which checking begins: that of the last batch below the recovery point that the offset
        index knows, or 0.

        The index entries past the recovery point are dropped, because recovery makes them again.
        """
        self.next_offset = segment.base_offset
        if segment.base_offset < self.recovery_point and segment.has_sound_indexes():
            segment.offset_index.truncate_to(self.recovery_point)
            segment.time_index.truncate_to(self.recovery_point)
            segment.transaction_index.truncate_to(self.recovery_point)
            position = segment.offset_index.last_position()
            header = self._header_at(segment, position)
            # An index entry may be newer than the batches that survived: it counts only if it points at a batch.
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
        """Replay the batches before the start position that no snapshot covers into the producer state, without
        checking them."""
        if self.producers.map_end_offset < end_offset:
            replay_producers(segment, self.producers, end_position)

    def _header_at(self, segment: Segment, position: int) -> BatchHeader | None:
        """The header of the batch at a position; None if no batch begins there."""
        try:
            return parse_header(segment.file().pread(HEADER_SIZE, position), 0, True)
        except MalformedMessage:
            return None

    def _refuse_disorder(self, segment: Segment, header: BatchHeader, position: int) -> None:
        """Raise `DamagedBatch` if a batch with a valid checksum cannot follow the batch before it. The checksum does
        not cover the base offset and the leader epoch."""
        if header.last_offset - segment.base_offset > INT32_MAX:
            raise DamagedBatch(position, f"offset {header.base_offset} in a segment from {segment.base_offset} on")
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            raise DamagedBatch(position, f"offset {header.base_offset} after {self.next_offset - 1}")
        if header.magic != MAGIC:
            return  # Messages of formats 0 and 1 have no epoch.
        if header.partition_leader_epoch < self.last_epoch and self.next_offset >= self.recovery_point:
            # A truncation had unlinked this segment, and the crash restored it. It now follows batches that were
            # appended later.
            raise DamagedBatch(position, f"leader epoch {header.partition_leader_epoch} after {self.last_epoch}")
        self.last_epoch = header.partition_leader_epoch
