"""Restoring a backup: it writes the log directories of all nodes of the cluster, with which the nodes can start.

Everything is written below `DIR/.restoring` and moved into place at the end, so that a stopped restore leaves nothing
with which a node would start. Each log is read and written once. Only `__consumer_offsets` is read again, because the
offsets of its groups depend on the transactions that the restore aborts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from moldau.backup.cluster_image import (
    Placement,
    lowered_settings,
    nodes_of,
    restored_image,
    restored_quorum,
)
from moldau.backup.group_offsets import MovedOffset, SettledOffsets
from moldau.backup.log_writing import SEGMENT_BYTES, LogWriter
from moldau.backup.manifest import Manifest, PartitionBackup, PartitionKey
from moldau.backup.moment import is_sure, moment_of
from moldau.backup.observed import ObservedLog, ObservedStates
from moldau.backup.reading import read_batches, read_metadata
from moldau.backup.report import CutLog, RestoreReport, time_text
from moldau.backup.settled_log import aborting, appended, settled
from moldau.backup.settling import LogChanges, Settlement, settle
from moldau.coordinator.group.records import TopicPartition, offset_record
from moldau.coordinator.transaction.records import record_of
from moldau.kraft.features import METADATA_VERSION, TRANSACTION_VERSION
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.snapshot.batches import load_snapshot, snapshot_batches
from moldau.kraft.snapshot.names import BOOTSTRAP_CHECKPOINT, SnapshotId
from moldau.kraft.topic_names import refusal_of_name
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.metadata import FeatureLevelRecord
from moldau.storage.checkpoints.meta_properties import (
    RESERVED_DIRECTORY_IDS,
    MetaProperties,
    write_meta_properties,
)
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARKS, LOG_STARTS, write_offsets
from moldau.storage.files.log_paths import METADATA_DIRECTORY, partition_directory_name
from moldau.storage.files.port import FileSystem, make_durable_directory
from moldau.storage.tiered.port import CorruptObject, RemoteStorage

OFFSETS_TOPIC: Final = "__consumer_offsets"
STATES_TOPIC: Final = "__transaction_state"
UNFINISHED: Final = ".restoring"
"""The directory in which a restore writes, until everything is there."""
RETENTION_MS: Final = 604_800_000
"""The default of the setting log.retention.ms."""
RECORDS_AT_ONCE: Final = 1_000
"""The most records of a batch that a restore appends."""
Progress = Callable[[int, int], None]
"""Called with the number of bytes that were read, and the number of bytes to read in total."""


class RestoreRefused(Exception):
    """The restore cannot be carried out, and it changed nothing. The message says why."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The arguments of a restore."""

    time_ms: int | None = None
    """The time (ms since 1970) to which the restore takes all logs back. If it is None, it is the time
    of the backup."""
    placement: Placement = field(default_factory=Placement)


class Target:
    """The directory into which a restore writes a directory for each node. Every method blocks and raises OSError."""

    def __init__(self, fs: FileSystem, path: str, entropy: Callable[[int], bytes]) -> None:
        self.fs = fs
        self.path = path
        self.entropy = entropy
        self._is_new = False

    @property
    def unfinished(self) -> str:
        return f"{self.path}/{UNFINISHED}"

    def check(self, needed: int) -> None:
        """Raise `RestoreRefused` unless the directory is empty or missing, and its volume has room for
        `needed` bytes."""
        fs = self.fs
        if fs.exists(self.path):
            if not fs.is_directory(self.path):
                raise RestoreRefused(f"{self.path} is a file: name a directory that is empty or does not exist")
            if any(name != UNFINISHED for name in fs.list_directory(self.path)):
                raise RestoreRefused(
                    f"{self.path} is not empty: name a directory that is empty or does not exist, and copy topics from"
                    " there into a cluster that runs (docs/backup.md)"
                )
        present = self.path
        while present and not fs.exists(present):
            present = present.rpartition("/")[0]
        _, usable = fs.disk_usage(present or "/")
        if usable < needed:
            raise RestoreRefused(f"{self.path} has room for {usable:,} bytes, and the restore needs {needed:,}")

    def begin(self) -> None:
        """Remove the files that a stopped restore has left, and make the directory for unfinished files."""
        self._is_new = not self.fs.exists(self.path)
        self.abandon()
        make_durable_directory(self.fs, self.unfinished)

    def abandon(self) -> None:
        """Remove everything that an unfinished restore has written."""
        doomed = self.path if self._is_new else self.unfinished
        if self.fs.exists(doomed):
            self.fs.remove_tree(doomed)

    def complete(self, nodes: list[int]) -> None:
        """Move the directories of all nodes into place."""
        for node in nodes:
            self.fs.sync_directory(f"{self.unfinished}/{node}")
        self.fs.sync_directory(self.unfinished)
        for node in nodes:
            self.fs.rename(f"{self.unfinished}/{node}", f"{self.path}/{node}")
        self.fs.remove_tree(self.unfinished)
        self.fs.sync_directory(self.path)


async def restore(
    storage: RemoteStorage,
    manifest: Manifest,
    request: RestoreRequest,
    target: Target | None,
    now_ms: int,
    progress: Progress = lambda done, total: None,
) -> RestoreReport:
    """Restore a backup into the directory `target`. If `target` is None, only report what a restore would change.
    Raises `RestoreRefused`, `CorruptObject` for a damaged backup, `RemoteStorageError` and OSError. After each of these
    errors nothing is left in the directory."""
    restoring = _Restoring(storage, manifest, request, target, now_ms, progress)
    await restoring.prepare()
    if target is not None:
        target.check(restoring.needed)
        target.begin()
    try:
        await restoring.run()
        if target is not None:
            target.complete(restoring.nodes)
    except BaseException:
        restoring.close()
        if target is not None:
            target.abandon()
        raise
    return restoring.report


class _Restoring:
    def __init__(
        self,
        storage: RemoteStorage,
        manifest: Manifest,
        request: RestoreRequest,
        target: Target | None,
        now_ms: int,
        progress: Progress,
    ) -> None:
        self._storage = storage
        self._manifest = manifest
        self._placement = request.placement
        self._target = target
        self._now_ms = now_ms
        self._progress = progress
        self._moment = moment_of(manifest, request.time_ms)
        self._is_sure = is_sure(manifest, self._moment)
        self._image = MetadataImage()
        self._quorum = QuorumDescription()
        self._directories: dict[int, bytes] = {}
        self._logs: dict[TopicPartition, ObservedLog] = {}
        self._states: dict[int, ObservedStates] = {}
        self._writers: dict[TopicPartition, LogWriter] = {}
        self._ends: dict[TopicPartition, int] = {}
        """The end offsets of the restored logs."""
        self._done = 0
        self.nodes: list[int] = []
        self.report = RestoreReport(manifest.backup_id, manifest.cluster_id, self._moment, manifest.began_ms)

    # What is restored

    async def prepare(self) -> None:
        """Read the metadata of the backup, and check the request against it. Raises `RestoreRefused` and
        `CorruptObject`."""
        data, metadata = await read_metadata(self._storage, self._manifest), self._manifest.metadata
        try:
            loaded = load_snapshot(data, SnapshotId(metadata.end_offset, metadata.epoch))
        except MalformedMessage as malformed:
            raise CorruptObject(f"the metadata of backup {self._manifest.backup_id}: {malformed}") from None
        self._image, self._quorum = loaded.replay.image, loaded.quorum
        self._check_topics()
        self.nodes = nodes_of(self._image, self._quorum, self._placement)
        if self._target is not None:
            self._directories = {node: _directory_id(self._target.entropy) for node in self.nodes}
        report, kept = (
            self.report,
            [topic for topic in self._manifest.topics if self._placement.includes_topic(topic.name)],
        )
        report.nodes, report.topic_count = self.nodes, len(kept)
        report.partition_count = sum(len(topic.partitions) for topic in kept)
        report.lowered = lowered_settings(self._image, self._placement)
        report.expiring = sorted({key.topic for key, each in self._restored() if self._is_expired(key, each)})

    def _check_topics(self) -> None:
        names = {topic.name for topic in self._manifest.topics}
        placement = self._placement
        for name in sorted({*(placement.topics or ()), *placement.renames} - names):
            raise RestoreRefused(f"the backup {self._manifest.backup_id} has no topic {name}")
        kept = [name for name in names if placement.includes_topic(name)]
        for name, renamed in placement.renames.items():
            if name not in kept:
                raise RestoreRefused(f"{name} is to be renamed, and is not restored: add it to the topics")
            problem = refusal_of_name(renamed)
            if problem is not None:
                raise RestoreRefused(f"{name} cannot be renamed: {problem}")
        renamed_names = [placement.name_of(name) for name in kept]
        for name in sorted({each for each in renamed_names if renamed_names.count(each) > 1}):
            raise RestoreRefused(f"two topics would have the name {name}")
        for name in sorted(name for name in kept if self._image.topics.by_name(name) is None):
            raise CorruptObject(f"the metadata of backup {self._manifest.backup_id} has no topic {name}")

    def _restored(self) -> Iterator[tuple[PartitionKey, PartitionBackup]]:
        """The partitions of the backup that are restored."""
        return (each for each in self._manifest.partitions() if self._placement.includes_topic(each[0].topic))

    def _is_expired(self, key: PartitionKey, backup: PartitionBackup) -> bool:
        """Whether a node that starts will find records that are older than the topic's retention."""
        settings = self._image.configs.settings_of(ResourceType.TOPIC, key.topic)
        keeps_ms = int(settings.get("retention.ms", RETENTION_MS))
        if keeps_ms < 0 or "delete" not in settings.get("cleanup.policy", "delete"):
            return False
        oldest = next((piece.max_timestamp_ms for piece in backup.pieces if piece.size), -1)
        return 0 <= oldest < self._now_ms - keeps_ms

    @property
    def needed(self) -> int:
        """The number of bytes of all restored logs, on all nodes."""
        return sum(piece.size * len(self._replicas(key)) for key, each in self._restored() for piece in each.pieces)

    def _replicas(self, key: PartitionKey) -> tuple[int, ...]:
        if self._placement.single_node is not None:
            return (self._placement.single_node,)
        partition = self._image.topics.partition(key.topic, key.partition)
        if partition is None:
            raise CorruptObject(f"the metadata of backup {self._manifest.backup_id} has no partition {key}")
        return tuple(each for each in partition.replicas if each not in partition.removing_replicas) or (
            partition.replicas
        )

    # Reading and writing the logs

    async def run(self) -> None:
        """Read all logs, write them, and make each of their transactions whole or absent in all logs."""
        internal = [each for each in self._manifest.partitions() if each[0].topic in (OFFSETS_TOPIC, STATES_TOPIC)]
        others = [each for each in self._restored() if each[0].topic not in (OFFSETS_TOPIC, STATES_TOPIC)]
        total = sum(piece.size for _, each in (*internal, *others) for piece in each.pieces)
        for key, backup in (*internal, *others):
            await self._read(key, backup, total)
        if self._moment.is_asked and total and not self.report.size:
            raise RestoreRefused(
                f"in the backup {self._manifest.backup_id} nothing is as old as {time_text(self._moment.time_ms)}"
            )
        settlement = self.report.settlement = settle(self._logs, self._states, self._moment.time_ms)
        self._settle_logs(settlement)
        await self._settle_offsets(settlement)
        self._settle_states(settlement)
        self._finish()

    async def _read(self, key: PartitionKey, backup: PartitionBackup, total: int) -> None:
        """Read the log of a partition to its end, and write its batches up to the restored moment."""
        partition = key.topic, key.partition
        observed: ObservedLog | ObservedStates
        if key.topic == STATES_TOPIC:
            decided = backup.end_offset if self._is_sure else self._manifest.decided.get(key.partition)
            observed = self._states[key.partition] = ObservedStates(
                key.partition, backup.end_offset, decided, self._moment
            )
        else:
            observed = self._logs[partition] = ObservedLog(
                backup.end_offset, self._moment, has_commits=key.topic == OFFSETS_TOPIC
            )
        writer = self._writer(key, backup)
        read = self._done
        try:
            async for header, batch in read_batches(self._storage, key, backup):
                goes_on = observed.observe(header, batch)
                if header.base_offset < observed.moment_offset:
                    self.report.size += header.size
                    if writer is not None:
                        is_near = self._moment.is_near(header.max_timestamp)
                        writer.write(header, batch, is_noted=header.is_control and is_near)
                read += header.size
                self._progress(read, total)
                if not goes_on:
                    break
        except MalformedMessage as malformed:
            raise CorruptObject(f"{key}: {malformed}") from None
        observed.finish(backup.start_offset)
        self._done += sum(piece.size for piece in backup.pieces)
        self._progress(self._done, total)
        if self._placement.includes_topic(key.topic):
            self._ends[partition] = observed.moment_offset
            if observed.cut_ms is not None and observed.moment_offset < backup.end_offset:
                self.report.cuts.append(CutLog(*partition, observed.moment_offset, backup.end_offset, observed.cut_ms))

    def _writer(self, key: PartitionKey, backup: PartitionBackup) -> LogWriter | None:
        if self._target is None or not self._placement.includes_topic(key.topic):
            return None
        name = partition_directory_name(self._placement.name_of(key.topic), key.partition)
        segment_bytes = int(
            self._image.configs.settings_of(ResourceType.TOPIC, key.topic).get("segment.bytes", SEGMENT_BYTES)
        )
        writer = self._writers[key.topic, key.partition] = LogWriter(
            self._target.fs,
            [f"{self._target.unfinished}/{node}/{name}" for node in self._replicas(key)],
            key.topic_id,
            backup.start_offset,
            segment_bytes,
        )
        return writer

    # Applying the settlement

    def _settle_logs(self, settlement: Settlement) -> None:
        for partition, changes in settlement.logs.items():
            writer, log = self._writers.get(partition), self._logs[partition]
            markers = list(appended(log, changes, self._moment.time_ms))
            if partition in self._ends:
                self._ends[partition] += len(markers)
            if writer is None:
                continue
            for offset in sorted(changes.rewritten):
                writer.rewrite(offset, aborting)
            for marker in markers:
                writer.write(parse_header(marker), marker)

    async def _settle_offsets(self, settlement: Settlement) -> None:
        """Move the committed offsets of groups that are past the end of a restored log back to that end."""
        for key, backup in self._restored():
            if key.topic != OFFSETS_TOPIC:
                continue
            partition = key.topic, key.partition
            log, changes = self._logs[partition], settlement.logs.get(partition, LogChanges())
            offsets = SettledOffsets(0)
            async for header, batch in read_batches(self._storage, key, backup, log.end_offset):
                offsets.observe(settled(header, batch, changes))
            for marker in appended(log, changes, self._moment.time_ms):
                offsets.observe(marker)
            moved = offsets.moved(self._ends)
            self.report.moved += moved
            self._append(partition, log.last_epoch, [self._offset_record(each) for each in moved])

    def _offset_record(self, moved: MovedOffset) -> Record:
        return offset_record(moved.change(), self._moment.time_ms)

    def _settle_states(self, settlement: Settlement) -> None:
        level = self._image.features.levels.get(TRANSACTION_VERSION, 0)
        for index, changes in settlement.states.items():
            records = [record_of(change, level, self._moment.time_ms) for change in changes]
            self._append((STATES_TOPIC, index), self._states[index].last_epoch, records)

    def _append(self, partition: TopicPartition, last_epoch: int, records: list[Record]) -> None:
        """Append records to a partition of an internal topic, if it is restored."""
        if partition not in self._ends:
            return
        for start in range(0, len(records), RECORDS_AT_ONCE):
            offset = self._ends[partition]
            batch = build_batch(
                records[start : start + RECORDS_AT_ONCE],
                base_offset=offset,
                partition_leader_epoch=max(0, last_epoch),
            )
            header = parse_header(batch)
            self._ends[partition] = header.next_offset
            writer = self._writers.get(partition)
            if writer is not None:
                writer.write(header, batch)

    # The rest of the directories

    def _finish(self) -> None:
        if self._target is None:
            return
        for partition, writer in self._writers.items():
            writer.finish(self._ends[partition])
        image = restored_image(
            self._image,
            self._placement,
            self._directories,
            self._last_epochs(),
            self.report.settlement.next_producer_id,
        )
        for node in self.nodes:
            self._write_node(self._target, node, image)

    def _last_epochs(self) -> dict[TopicPartition, int]:
        """Return the highest leader epoch of each partition, so that the next leader epoch is higher. The coordinator's
        epoch is the leader epoch of its partition of `__transaction_state`, and a marker may have a higher epoch than
        the log of that partition."""
        coordinator_epoch = max((log.coordinator_epoch for log in self._logs.values()), default=-1)
        epochs = {partition: log.last_epoch for partition, log in self._logs.items()}
        for index, states in self._states.items():
            epochs[STATES_TOPIC, index] = max(states.last_epoch, coordinator_epoch)
        return epochs

    def _write_node(self, target: Target, node: int, image: MetadataImage) -> None:
        fs, directory = target.fs, f"{target.unfinished}/{node}"
        metadata = self._manifest.metadata
        version = image.features.metadata_version
        make_durable_directory(fs, f"{directory}/{METADATA_DIRECTORY}")
        snapshot = snapshot_batches(
            image.snapshot_records(),
            restored_quorum(self._quorum, self._placement, self._directories),
            metadata_version=version,
            epoch=metadata.epoch,
            last_contained_ms=self._manifest.began_ms,
            now_ms=self._now_ms,
        )
        name = SnapshotId(metadata.end_offset, metadata.epoch).file_name
        _write_file(fs, f"{directory}/{METADATA_DIRECTORY}/{name}", snapshot)
        bootstrap = snapshot_batches(
            [FeatureLevelRecord(name=METADATA_VERSION, feature_level=version)],
            QuorumDescription(),
            metadata_version=version,
            epoch=0,
            last_contained_ms=0,
            now_ms=self._now_ms,
        )
        _write_file(fs, f"{directory}/{BOOTSTRAP_CHECKPOINT}", bootstrap)
        here = {key: each for key, each in self._restored() if node in self._replicas(key)}
        names = {key: (self._placement.name_of(key.topic), key.partition) for key in here}
        starts = {
            names[key]: each.start_offset
            for key, each in here.items()
            if each.pieces and each.pieces[0].first_offset < each.start_offset
        }
        write_offsets(fs, directory, LOG_STARTS, starts)
        ends = {names[key]: self._ends[key.topic, key.partition] for key in here}
        write_offsets(fs, directory, HIGH_WATERMARKS, ends)
        fs.sync_directory(f"{directory}/{METADATA_DIRECTORY}")
        cluster_id = self._manifest.cluster_id
        write_meta_properties(fs, directory, MetaProperties(cluster_id, node, self._directories[node]))

    def close(self) -> None:
        """Close the files of all logs."""
        for writer in self._writers.values():
            writer.close()


def _directory_id(entropy: Callable[[int], bytes]) -> bytes:
    """Make the id of a new log directory."""
    while True:
        directory_id = entropy(16)
        if int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS and directory_id[0] >> 2 != 62:
            return directory_id


def _write_file(fs: FileSystem, path: str, parts: Iterator[bytes]) -> None:
    """Write the parts of a new file, and sync it."""
    file = fs.open(path, create=True)
    try:
        for part in parts:
            file.append([part])
        file.sync()
    finally:
        file.close()
