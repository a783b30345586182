"""The metadata log on disk: reads snapshot and records at start, appends batches, and keeps snapshots in the directory
of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from moldau.kraft.features import record_version
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import QuorumDescription, quorum_after
from moldau.kraft.raft.election_state import QUORUM_STATE, CorruptQuorumState, ElectionState, decode_election
from moldau.kraft.raft.log_view import OffsetAndEpoch
from moldau.kraft.record_frame import decode_record, encode_record
from moldau.kraft.snapshot.batches import (
    LoadedSnapshot,
    SnapshotContent,
    load_snapshot,
    read_snapshot,
    snapshot_batches,
)
from moldau.kraft.snapshot.names import PART_SUFFIX, SnapshotId, snapshots_in
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.protocol.records.metadata import NoOpRecord
from moldau.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH
from moldau.storage.directory.previous_run import PreviousRun
from moldau.storage.files.log_paths import METADATA_DIRECTORY
from moldau.storage.files.port import FileSystem, make_durable_directory, write_atomically
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log.recovery import CorruptLog, RecoveryReport
from moldau.storage.log_config import LogConfig

DIRECTORY: Final = METADATA_DIRECTORY
TOPIC_ID: Final = (1).to_bytes(16, "big")
BATCH_SIZE_MAX: Final = 8 << 20
READ_SIZE: Final = 1 << 20
ACCEPT_LOSS: Final = "moldau.metadata.loss.accept"
"""The setting with which a node starts without the metadata that its log has lost."""
LOST_METADATA: Final = (
    "Committed metadata may be lost, and topics with it: put the file back from a copy, or, where other controllers of"
    " the quorum run, take this node out of the voters and add it again with an empty directory. Without both, one"
    f" start with --override {ACCEPT_LOSS}=true cuts the log at the damage; the replicas of topics that are lost then"
    " stay in directories with the suffix -stray"
)
"""The advice to an operator whose metadata log is damaged."""
LOST_VOTE: Final = (
    "It holds the vote of this node: put it back from a copy; on a node that is its only controller it may be deleted"
)
"""The advice to an operator if the file with this node's vote is damaged."""
NO_OP: Final = build_batch([Record(None, encode_record(NoOpRecord(), 0))])[HEADER_SIZE:]
"""The body of a batch with one NoOpRecord, which an idle controller appends."""


class LoadedMetadata(NamedTuple):
    """The contents of a metadata directory at start: the metadata up to the end of the log, whether committed or not,
    the descriptions of the quorum, and the election state.
    """

    log: MetadataLog
    replay: Replay
    descriptions: list[DescriptionAtOffset]
    election: ElectionState


DescriptionAtOffset = tuple[int, QuorumDescription]
"""The offset in the log from which a description of the quorum applies, and the description. The offset is the base
offset of the control batch that has it, the last offset of a snapshot, or `BEFORE_THE_LOG` for the bootstrap
checkpoint.
"""


class DiskFull(Exception):
    """A write failed because the disk is full, or because the process has too many open files.

    Nothing was written, and a later attempt may succeed.
    """


class MetadataReading:
    """The metadata and the descriptions of the quorum that a start has read so far from the snapshot and the log."""

    def __init__(self) -> None:
        self.replay = Replay()
        self.descriptions: list[DescriptionAtOffset] = []

    def describe(self, offset: int, description: QuorumDescription) -> None:
        self.descriptions.append((offset, description))

    @property
    def quorum(self) -> QuorumDescription:
        return self.descriptions[-1][1] if self.descriptions else QuorumDescription()


class Retention(Protocol):
    """The retention of the log together with its older snapshots, in bytes and in milliseconds; -1 for no limit."""

    @property
    def retention_bytes(self) -> int: ...

    @property
    def retention_ms(self) -> int: ...


class MetadataLog:
    """The metadata log, with the snapshots in the directory of its segments."""

    def __init__(self, fs: FileSystem, log: Log, snapshots: list[SnapshotId]) -> None:
        self.log = log
        self._fs = fs
        self._snapshots = snapshots

    @property
    def directory(self) -> str:
        return self.log.directory

    # Opening

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        log_dir: str,
        config: LogConfig,
        now_ms: int,
        report: RecoveryReport | None = None,
        previous: PreviousRun | None = None,
        *,
        accepts_loss: bool = False,
    ) -> LoadedMetadata:
        """Read the newest snapshot and the log after it; blocks.

        `previous`: how the last process ended, None if that is not known. After a clean stop the log must end where
        that process left it. With `accepts_loss` a damaged log is cut at the damage. Raises OSError, `CorruptLog`,
        `CorruptQuorumState` and `MalformedMessage`.
        """
        directory = f"{log_dir}/{DIRECTORY}"
        make_durable_directory(fs, directory)
        names = fs.list_directory(directory)
        for name in names:
            if name.endswith(PART_SUFFIX):
                fs.unlink(f"{directory}/{name}")
        snapshots = snapshots_in(names)
        reading = MetadataReading()
        newest = snapshots[-1] if snapshots else SnapshotId(0, 0)
        if snapshots:
            loaded = load_snapshot_file(fs, directory, newest)
            reading.replay = loaded.replay
            reading.describe(newest.end_offset - 1, loaded.quorum)
        try:
            log = Log.open(
                fs,
                directory,
                config,
                recovery_point=0 if accepts_loss else newest.end_offset,
                now_ms=now_ms,
                report=report,
                may_have_lost_writes=accepts_loss or previous is None or previous.may_have_lost_writes,
                closed_cleanly=previous is not None and previous.was_clean and not accepts_loss,
            )
        except CorruptLog as damage:
            raise CorruptLog(f"{damage}. {LOST_METADATA}") from damage
        if not _continues(log, newest):
            log.truncate_fully_and_start_at(newest.end_offset, now_ms)
        log.assign_topic_id(TOPIC_ID)
        log.flush(
            now_ms
        )  # The last process may have been killed during a sync, so the log is synced: then all of it is durable.
        metadata_log = cls(fs, log, snapshots)
        unlink_all(fs, metadata_log._forget_before(log.log_start_offset))
        metadata_log._replay_log(reading)
        return LoadedMetadata(metadata_log, reading.replay, reading.descriptions, metadata_log._election())

    def _election(self) -> ElectionState:
        path = f"{self.directory}/{QUORUM_STATE}"
        if not self._fs.exists(path):
            return ElectionState()
        try:
            return decode_election(self._fs.read(path))
        except CorruptQuorumState as error:
            raise CorruptQuorumState(f"{path}: {error}. {LOST_VOTE}") from error

    def _replay_log(self, reading: MetadataReading) -> None:
        """Replay all records after the snapshot as one delta: an image for each batch would make the time of a start
        quadratic.
        """
        end = reading.replay.image.provenance

        def all_records() -> Iterator[object]:
            nonlocal end
            for header, records in self._batches(end.end_offset):
                end = Provenance(header.next_offset, header.partition_leader_epoch, header.max_timestamp)
                if header.is_control:
                    description = description_of(records, reading.quorum)
                    if description is not reading.quorum:
                        reading.describe(header.base_offset, description)
                else:
                    yield from (decode_record(_value(record)) for record in records)

        delta_records = list(all_records())
        reading.replay.replay(delta_records, end)

    def records_between(self, start_offset: int, end_offset: int) -> Iterator[tuple[list[object], Provenance]]:
        """Iterate over the batches between two offsets. Yields the metadata records of each batch, with the position in
        the log after that batch. A control batch has no metadata records.

        Blocks on the disk. `end_offset` has to be the end of a batch.
        """
        for header, records in self._batches(start_offset, end_offset):
            decoded = [] if header.is_control else [decode_record(_value(record)) for record in records]
            yield decoded, Provenance(header.next_offset, header.partition_leader_epoch, header.max_timestamp)

    def read(self, offset: int, size_max: int) -> bytes:
        """The stored batches from an offset on: `size_max` bytes at most, but at least one batch if there is any.

        The result is empty while the process has no free file descriptor, and after the log has failed.
        """
        try:
            read = self.log.read(offset, size_max, end_offset=self.log.end_offset, at_least_one=True)
            if read is ErrorCode.KAFKA_STORAGE_ERROR:
                return b""
            assert isinstance(read, LogRead), f"cannot read {self.directory} at {offset}"
            return b"" if read.slice is None else read.slice.file.pread(read.slice.size, read.slice.position)
        except OSError as error:
            self.log.fail_unless_transient(error)
            return b""

    def _batches(self, start_offset: int, end_offset: int | None = None) -> Iterator[tuple[BatchHeader, list[Record]]]:
        log = self.log
        offset = max(start_offset, log.log_start_offset)
        end_offset = log.end_offset if end_offset is None else end_offset
        while offset < end_offset:
            read = log.read(offset, READ_SIZE, end_offset=end_offset, at_least_one=True)
            assert isinstance(read, LogRead) and read.slice is not None, f"cannot read {log.directory} at {offset}"
            data = read.slice.file.pread(read.slice.size, read.slice.position)
            for position, header in iterate_batches(data):
                if not crc_is_valid(data, position, header):
                    raise MalformedMessage(f"{log.directory}: the batch at offset {offset} has a wrong checksum")
                # An idle controller appends thousands of these an hour, so a start does not decode them.
                is_no_op = data[position + HEADER_SIZE : position + header.size] == NO_OP
                yield header, [] if is_no_op else list(records_of(data, position, header))
                offset = header.next_offset

    def replay_again(self) -> Replay:
        """Read the newest snapshot and the log after it once more. Returns the state at the end of the log. Blocks."""
        newest = self.latest_snapshot
        replay = Replay() if newest is None else load_snapshot_file(self._fs, self.directory, newest).replay
        for records, provenance in self.records_between(replay.image.provenance.end_offset, self.end_offset):
            replay.replay(records, provenance)
        return replay

    # Lookups of the Raft machine (kraft/raft/log_view.py)

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_epoch(self) -> int:
        latest, snapshot = self.log.epochs.latest_epoch, self.latest_snapshot
        return latest if latest != UNDEFINED_EPOCH else snapshot.epoch if snapshot is not None else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        entries = self.log.epochs.entries
        if entries and epoch >= entries[-1].epoch:
            return OffsetAndEpoch(self.end_offset, entries[-1].epoch)
        if not entries or epoch < entries[0].epoch:
            earliest = self.earliest_snapshot
            return OffsetAndEpoch(self.start_offset, earliest.epoch if earliest is not None else 0)
        found = self.log.end_offset_for_epoch(epoch)
        return OffsetAndEpoch(found.end_offset, found.epoch)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return next(iter(self._taken()), None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return next(reversed(self._taken()), None)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        if snapshot_id not in self._taken():
            return None
        return self._fs.file_size(f"{self.directory}/{snapshot_id.file_name}")

    def _taken(self) -> list[SnapshotId]:
        """The snapshots except the bootstrap checkpoint, which ends at offset 0."""
        return [each for each in self._snapshots if each.end_offset > 0]

    # Following a leader

    def append_fetched(
        self, records: BytesLike, leader_epoch: int, before: QuorumDescription, now_ms: int
    ) -> list[DescriptionAtOffset]:
        """Append batches that were fetched from the leader, up to the first batch that is damaged or of a later epoch.
        Returns the descriptions of the quorum in the appended control records.

        `before`: the description of the quorum before these batches. Raises `DiskFull`.
        """
        start_offset = self.log.end_offset
        result = self.log.append_as_follower(records, leader_epoch, now_ms)
        if result.error is ErrorCode.KAFKA_STORAGE_ERROR:
            raise DiskFull(f"cannot append to {self.directory}: {result.error_message}")
        described: list[DescriptionAtOffset] = []
        for header, control in self._control_batches(records, start_offset):
            description = description_of(control, before)
            if description is not before:
                described.append((header.base_offset, description))
                before = description
        return described

    def _control_batches(self, records: BytesLike, start_offset: int) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """The control batches among `records` that were appended after `start_offset`. The last batch in `records` may
        be incomplete.
        """
        if self.log.end_offset == start_offset:
            return
        for position, header in iterate_batches(records):
            if header.is_control:
                yield header, list(records_of(records, position, header))
            if header.next_offset >= self.log.end_offset:
                return

    def truncate(self, end_offset: int, now_ms: int) -> None:
        """Remove all records from `end_offset` on. Raises OSError."""
        self.log.truncate_to(end_offset, now_ms)

    def replace_by_snapshot(self, snapshot: SnapshotId, now_ms: int) -> list[str]:
        """Let a durable snapshot replace the whole log and all earlier snapshots.

        Returns the paths of the earlier snapshots, to be unlinked in an executor thread. Raises OSError.
        """
        self.log.truncate_fully_and_start_at(snapshot.end_offset, now_ms)
        if snapshot not in self._snapshots:
            self._snapshots.append(snapshot)
        return self._forget_before(snapshot.end_offset)

    def _forget_before(self, offset: int) -> list[str]:
        """Forget the snapshots that end before `offset`, at which the log now starts. Returns their paths. The earliest
        remaining snapshot gives the epoch with which `end_offset_for_epoch` answers a follower whose log ends before
        that offset.
        """
        given_up = [each for each in self._taken() if each.end_offset < offset]
        self._snapshots = [each for each in self._snapshots if each not in given_up]
        return [f"{self.directory}/{each.file_name}" for each in given_up]

    # Writing

    def append_control(self, records: Sequence[Record], epoch: int, now_ms: int) -> Provenance:
        dated = [record._replace(timestamp=now_ms) for record in records]
        return self._append(build_batch(dated, is_control=True), epoch, now_ms)

    def append(self, records: Sequence[object], metadata_version: int, epoch: int, now_ms: int) -> Provenance:
        """Append the records as one batch, whole or not at all.

        Raises `DiskFull`, and `UnreadableRecord`; any other disk error is reported to the log's `on_failure`.
        """
        values = [encode_record(record, record_version(record, metadata_version)) for record in records]
        return self._append(build_batch(Record(None, value, now_ms) for value in values), epoch, now_ms)

    def _append(self, batch: bytes, epoch: int, now_ms: int) -> Provenance:
        assert len(batch) <= BATCH_SIZE_MAX, f"a metadata batch of {len(batch)} bytes"
        result = self.log.append_as_leader(batch, epoch, now_ms, origin=AppendOrigin.RAFT)
        if result.error is not ErrorCode.NONE:
            raise DiskFull(f"cannot append to {self.directory}: {result.error_message}")
        return Provenance(self.log.end_offset, epoch, now_ms)

    # Snapshots

    def write_snapshot(self, image: MetadataImage, quorum: QuorumDescription, now_ms: int) -> SnapshotId:
        """Write a committed image into a snapshot file and make the file durable. Blocks; safe in an executor
        thread.
        """
        snapshot = SnapshotId(image.provenance.end_offset, image.provenance.epoch)
        batches = snapshot_batches(
            image.snapshot_records(),
            quorum,
            metadata_version=image.features.metadata_version,
            epoch=snapshot.epoch,
            last_contained_ms=image.provenance.timestamp_ms,
            now_ms=now_ms,
        )
        path = f"{self.directory}/{snapshot.file_name}"
        write_batches(self._fs, path, batches)
        return snapshot

    def snapshot_written(self, snapshot: SnapshotId, retention: Retention, now_ms: int) -> list[str]:
        """Take a durable snapshot into use.

        If the retention requires it, the oldest snapshots are dropped, and the segments before the oldest remaining
        one. Returns the paths of the files to unlink in an executor thread. If a snapshot of the leader replaced the
        log while this one was written, this one is dropped.
        """
        newest = self.latest_snapshot
        if newest is not None and snapshot <= newest:
            return [] if snapshot in self._snapshots else [f"{self.directory}/{snapshot.file_name}"]
        self._snapshots.append(snapshot)
        paths: list[str] = []
        while len(self._snapshots) > 1 and self._is_over(retention, now_ms):
            oldest = self._snapshots.pop(0)
            start_offset = self._snapshots[0].end_offset
            error = self.log.advance_log_start(start_offset, start_offset)
            assert error is ErrorCode.NONE, "a snapshot ends within the log"
            paths += self.log.delete_old_segments(now_ms, start_offset)
            paths.append(f"{self.directory}/{oldest.file_name}")
        return paths

    def _is_over(self, retention: Retention, now_ms: int) -> bool:
        oldest = f"{self.directory}/{self._snapshots[0].file_name}"
        is_old = 0 <= retention.retention_ms < now_ms - self._fs.modified_ms(oldest)
        return is_old or 0 <= retention.retention_bytes < self._size()

    def _size(self) -> int:
        sizes = (self._fs.file_size(f"{self.directory}/{snapshot.file_name}") for snapshot in self._snapshots)
        return self.log.size + sum(sizes)


def read_snapshot_file(fs: FileSystem, path: str) -> SnapshotContent:
    """Read a snapshot file. Blocks. Raises OSError, and `MalformedMessage`, which names the file."""
    try:
        return read_snapshot(fs.read(path))
    except MalformedMessage as error:
        raise MalformedMessage(f"{path}: {error}") from error


def load_snapshot_file(fs: FileSystem, directory: str, snapshot: SnapshotId) -> LoadedSnapshot:
    """Load a snapshot file. Blocks. Raises OSError, and `MalformedMessage`, which names the file."""
    path = f"{directory}/{snapshot.file_name}"
    try:
        return load_snapshot(fs.read(path), snapshot)
    except MalformedMessage as error:
        raise MalformedMessage(f"{path}: {error}") from error


def write_batches(fs: FileSystem, path: str, batches: Iterable[bytes]) -> None:
    """Write a snapshot file so that a crash or an error leaves the whole file or none. Blocks. Raises OSError."""
    directory, _, name = path.rpartition("/")
    part = f"{path}.part"
    if fs.exists(part):
        fs.unlink(part)
    try:
        file = fs.open(part, create=True)
        try:
            for batch in batches:
                file.append([batch])
            file.sync()
        finally:
            file.close()
        fs.rename(part, f"{directory}/{name}")
    except OSError:
        with suppress(OSError):
            fs.unlink(part)
        raise
    fs.sync_directory(directory)


def description_of(records: Iterable[Record], before: QuorumDescription) -> QuorumDescription:
    """The description of the quorum after the records of a control batch; `before` itself if they do not change it."""
    description = before
    for record in records:
        description = quorum_after(record, description)
    return description


def unlink_all(fs: FileSystem, paths: Iterable[str]) -> None:
    """Unlink the files. Blocks."""
    for path in paths:
        fs.unlink(path)


def save_election(fs: FileSystem, directory: str, data: bytes) -> None:
    """Write the file quorum-state and make it durable. Blocks."""
    write_atomically(fs, f"{directory}/{QUORUM_STATE}", data)


def _continues(log: Log, snapshot: SnapshotId) -> bool:
    """Whether the log contains all records of a snapshot.

    A crash may leave a snapshot of the leader beside the log that it was about to replace. That log may end in records
    that were never committed, and may be longer. If the record before the end of the snapshot has the snapshot's epoch,
    all records before it are those of the snapshot (Raft's log matching).
    """
    if log.log_start_offset >= snapshot.end_offset:
        return True
    return log.end_offset >= snapshot.end_offset and log.epochs.epoch_of(snapshot.end_offset - 1) == snapshot.epoch


def _value(record: Record) -> bytes:
    if record.value is None:
        raise MalformedMessage(f"the metadata record at offset {record.offset} has no value")
    return record.value
