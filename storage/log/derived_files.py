"""The files of a log that can be rebuilt from its batches, when the broker starts: under which conditions, and from
what.

| file                      | a start does not trust it if             | it is made again from                  |
|---------------------------|---------------------------------------------|-------------------------------------|
| `.index`, `.timeindex`    | it is missing; of the active segment also   | the headers of the segment          |
|                           | if an entry names no batch               |                                        |
| `.txnindex`               | one of these is missing, or an entry is no  | the transaction markers, and the    |
|                           | transaction of its segment; after a crash   | producers before the segment        |
|                           | also if it is missing or empty, of the      |                                     |
|                           | segment with the recovery point and later   |                                     |
| `leader-epoch-checkpoint` | it is damaged, or the last batch has        | the headers of the log              |
|                           | another epoch                               |                                     |
| `.snapshot`               | its checksum is wrong, or it names offsets  | an earlier one and the headers      |
|                           | past its own                                |                                     |

A start reads neither the batches nor the sparse indexes of rolled segments, so that thousands of logs open in a moment.
The entries of these indexes are compared with the batches when they are used (`Segment.find_batch`). A segment without
aborted transactions has no `.txnindex`, so a start notices a deleted one only by the other indexes, which operators
delete with it, as Apache Kafka's documentation advises. If only the `.txnindex` is deleted, and it is before the
recovery point or the stop was clean, its transactions count as committed. Apache Kafka 4.3.1 does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.protocol.record_batch import CONTROL_BIT, MAGIC
from moldau.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, EpochStart, LeaderEpochs
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
from moldau.storage.files.log_paths import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
)
from moldau.storage.files.port import FileSystem
from moldau.storage.log.producer_replay import load_producers, replay_batch
from moldau.storage.log.recovery import RecoveryReport
from moldau.storage.log_config import INT64_MAX
from moldau.storage.producers.producer_snapshot import ProducerSnapshots
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.segment.segment import Segment


class IndexChecker:
    """Checks the indexes of a log's segments while the log is opened, and rebuilds the indexes of a segment from its
    batches.
    """

    def __init__(
        self,
        segments: list[Segment],
        names: set[str],
        snapshots: ProducerSnapshots,
        report: RecoveryReport,
        log_start_offset: int,
        now_ms: int,
    ) -> None:
        """`names`: the names of the files in the log's directory when it was opened."""
        self._segments = segments
        self._names = names
        self._snapshots = snapshots
        self._report = report
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self.rebuilt_segments: list[Segment] = []
        """The segments whose indexes were rebuilt."""

    def flaw_of(self, slot: int) -> str | None:
        """Return what is wrong with the indexes of a segment, judged by the names of its files and the entries of its
        transaction index. Return None if nothing is wrong. Raises OSError.
        """
        segment = self._segments[slot]
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if offset_name(segment.base_offset, suffix) not in self._names:
                return f"{segment.path(suffix)} is missing"
        if offset_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX) in self._names:
            end_offset = self._segments[slot + 1].base_offset if slot + 1 < len(self._segments) else INT64_MAX
            if not segment.has_sound_transaction_index(end_offset):
                return f"{segment.path(TRANSACTION_INDEX_SUFFIX)} is damaged"
        return None

    def rebuild_flawed_indexes_before(self, end_slot: int) -> None:
        """Rebuild the indexes of each segment before `end_slot` whose indexes have a flaw. Raises OSError and
        `MalformedMessage`.
        """
        for slot in range(end_slot):
            flaw = self.flaw_of(slot)
            if flaw is not None:
                self.rebuild_indexes(slot, flaw)

    def rebuild_indexes(self, slot: int, flaw: str) -> None:
        """Rebuild the three indexes of a segment from its batches. Raises OSError and `MalformedMessage`."""
        segment = self._segments[slot]
        self.empty_indexes(segment, flaw)
        producers = ProducerStates(INT64_MAX)
        load_producers(
            self._segments[:slot],
            self._snapshots,
            producers,
            self._log_start_offset,
            segment.base_offset,
            self._now_ms,
        )
        for position, header in segment.headers():
            segment.note_appended(position, header.size, header.last_offset, header.max_timestamp)
            is_marker = header.attributes & CONTROL_BIT and header.producer_id >= 0
            batch = segment.file().pread(header.size, position) if is_marker else None
            replay_batch(segment, producers, header, batch)
        segment.finish_indexes()
        self.rebuilt_segments.append(segment)
        self._names |= {offset_name(segment.base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}

    def empty_indexes(self, segment: Segment, flaw: str) -> None:
        """Empty or create the three indexes of a segment; the caller then fills them from the batches. Raises OSError.

        `flaw`, the reason, is reported only for a segment with batches.
        """
        if segment.size:
            self._report(f"{flaw}: the indexes of {segment.path(LOG_SUFFIX)} are made again from its batches")
        segment.reset_indexes()
        segment.transaction_index.clear()

    def may_lack_aborts(self, slot: int, producers: ProducerStates) -> bool:
        """Whether aborted transactions may be missing in the transaction index of a segment: the index has no entries,
        although a producer of the log has ended a transaction. Raises OSError.
        """
        has_ended = any(entry.coordinator_epoch >= 0 for entry in producers.entries.values())
        return has_ended and not self._segments[slot].transaction_index.entries()

    def transaction_index_ends_before(self, slot: int, end_offset: int) -> bool:
        """Whether all entries of a segment's transaction index are before `end_offset`, or it does not exist. Raises
        OSError.
        """
        segment = self._segments[slot]
        is_there = offset_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX) in self._names
        return not is_there or segment.has_sound_transaction_index(end_offset)


def report_missing_segments(
    directory: str, segments: Sequence[Segment], orphans: Sequence[int], report: RecoveryReport
) -> None:
    """Report each segment between two others that is empty, or whose .log file is missing although an index is left.

    `orphans`: the base offsets of indexes without a .log file. Compaction leaves both kinds of segments; other logs
    have neither.
    """
    bases = [segment.base_offset for segment in segments]
    empty = [segment.base_offset for segment in segments[:-1] if not segment.size]
    within = [offset for offset in orphans if bases[0] < offset < bases[-1]]
    for offset in sorted({*empty, *within}):
        path = f"{directory}/{offset_name(offset, LOG_SUFFIX)}"
        following = next(base for base in bases if base > offset)
        state = "is empty" if offset in empty else "is missing"
        report(f"{path} {state}: the records from offset {offset} to {following - 1} are gone")


def load_epochs(
    fs: FileSystem, directory: str, segments: Sequence[Segment], trusted_end_offset: int, report: RecoveryReport
) -> LeaderEpochs:
    """Read the leader epochs from the checkpoint. If the checkpoint is damaged, read them from the headers of the
    batches before `trusted_end_offset`. Raises OSError and `MalformedMessage`.
    """
    try:
        return LeaderEpochs.load(fs, directory)
    except CorruptCheckpoint as error:
        report(f"{error}: the file is made again from the leader epochs of the batches")
    epochs = LeaderEpochs(fs, directory, epochs_of_batches(segments, 0, trusted_end_offset))
    epochs.note_not_written()
    return epochs


def correct_epochs(epochs: LeaderEpochs, segments: Sequence[Segment], last_epoch: int, report: RecoveryReport) -> None:
    """Replace the leader epochs of the checkpoint if its latest epoch is not the epoch of the last batch.

    Epochs that ended before the first segment are kept, because a tiered log has no local batches of them.
    `last_epoch`: the epoch of the last batch; -1 if the log has no batch. Raises OSError and `MalformedMessage`.
    """
    if last_epoch == UNDEFINED_EPOCH or last_epoch == epochs.latest_epoch or not epochs.entries:
        return
    stated = f"{epochs.path}: the last batch is of leader epoch {last_epoch}, and not of {epochs.latest_epoch}"
    report(f"{stated}: the file is made again from the leader epochs of the batches")
    found = epochs_of_batches(segments, 0, INT64_MAX)
    start = segments[0].base_offset
    earlier = [each for each in epochs.entries if each.start_offset < start and each.epoch <= found[0].epoch]
    if earlier and earlier[-1].epoch == found[0].epoch:
        del found[0]
    epochs.replace([*earlier, *found])


def add_missing_earlier_epochs(
    epochs: LeaderEpochs, segments: Sequence[Segment], log_start_offset: int, end_offset: int
) -> None:
    """Add the leader epochs that are missing before the first one of the checkpoint, from the batches. Raises OSError
    and `MalformedMessage`.

    After a deletion at the start of the log, a crash may restore the old segments but not the old epoch checkpoint. A
    leader that does not know the epochs of these segments would tell a follower of such an epoch that their logs agree.
    DIVERGES: Apache Kafka knows the epochs of its checkpoint alone.
    """
    known_from = epochs.entries[0].start_offset if epochs.entries else end_offset
    if known_from <= log_start_offset:
        return
    earlier = epochs_of_batches(segments, log_start_offset, known_from)
    if earlier:
        epochs.insert_earlier(earlier)


def epochs_of_batches(segments: Sequence[Segment], start_offset: int, end_offset: int) -> list[EpochStart]:
    """Read the leader epochs of the batches in [start_offset, end_offset) from the batch headers. Raises OSError and
    `MalformedMessage`."""
    found: list[EpochStart] = []
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, header in segment.headers():
            # Messages of formats 0 and 1 have no epoch, and the checkpoint names those of what follows them.
            if header.base_offset >= end_offset or header.magic != MAGIC:
                break
            is_new = header.partition_leader_epoch > (found[-1].epoch if found else UNDEFINED_EPOCH)
            if is_new and header.next_offset > start_offset:
                found.append(EpochStart(header.partition_leader_epoch, max(header.base_offset, start_offset)))
    return found
