"""Restores a backup: writes the log directories with which all nodes of the cluster can start.

Everything is written below `DIR/.restoring` and moved into place at the end, so that a stopped restore leaves nothing
with which a node would start. Each log is read and written once. Only `__consumer_offsets` and `__share_group_state`
are read again, because the offsets of groups depend on the transactions that the restore aborts, and on the ends of all
logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from moldau.backup.cluster_image import (
    RestorePlacement,
    lowered_min_insync_settings,
    restored_image,
    restored_node_ids,
    restored_quorum,
    restored_replicas,
)
from moldau.backup.group_offsets import RestoredGroupOffsets
from moldau.backup.log_writing import SEGMENT_BYTES_MAX, RestoredLogWriter
from moldau.backup.manifest import BackupManifest, PartitionBackup, PartitionKey
from moldau.backup.moment import has_all_decided_transactions, restore_moment
from moldau.backup.observed import LogObserver, TransactionStateObserver
from moldau.backup.reading import read_batches, read_metadata
from moldau.backup.report import CutLog, RestoreReport, utc_time_text
from moldau.backup.settled_log import abort_marker_for, appended_markers, restored_batch
from moldau.backup.settling import MarkerChanges, TransactionRepairs, find_transaction_repairs
from moldau.backup.share_states import RestoredShareStates
from moldau.backup.sources.order import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from moldau.coordinator.group.records import TopicPartition, offset_record
from moldau.coordinator.share_coordinator.records import record_of as share_record_of
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
from moldau.storage.checkpoints.meta_properties import MetaProperties, new_directory_id, write_meta_properties
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, write_offsets
from moldau.storage.files.log_paths import METADATA_DIRECTORY, partition_directory_name
from moldau.storage.files.port import FileSystem, make_durable_directory
from moldau.storage.tiered.port import CorruptObject, RemoteStorage
from moldau.tables.planning.planner import INTERNAL_TOPICS

UNFINISHED_DIRECTORY: Final = ".restoring"
"""The directory for the files of a restore that is not complete."""
RETENTION_MS_DEFAULT: Final = 604_800_000
"""The default of the setting log.retention.ms."""
APPENDED_RECORDS_MAX: Final = 1_000
"""The maximum number of records in a batch that a restore appends."""
Progress = Callable[[int, int], None]
"""Called with the number of bytes read, and the total number of bytes to read."""


class RestoreRefused(Exception):
    """Raised if a restore cannot be carried out. It has changed nothing, and the message says why."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The arguments of a restore."""

    time_ms: int | None = None
    """The time (ms since 1970) to which all logs are restored; None for the time of the backup."""
    placement: RestorePlacement = field(default_factory=RestorePlacement)


class RestoreTarget:
    """The directory into which a restore writes one directory for each node. Every method blocks and raises OSError."""

    def __init__(self, fs: FileSystem, path: str, entropy: Callable[[int], bytes]) -> None:
        self.fs = fs
        self.path = path
        self.entropy = entropy
        self._is_new = False
        self._moved: list[str] = []
        """The directories of nodes that are at their final place."""

    @property
    def unfinished_path(self) -> str:
        return f"{self.path}/{UNFINISHED_DIRECTORY}"

    def check_empty_with_room(self, needed: int) -> None:
        """Raise `RestoreRefused` unless the directory is empty or missing, and its volume has room for
        `needed` bytes."""
        fs = self.fs
        if fs.exists(self.path):
            if not fs.is_directory(self.path):
                raise RestoreRefused(f"{self.path} is a file: name a directory that is empty or does not exist")
            if any(name != UNFINISHED_DIRECTORY for name in fs.list_directory(self.path)):
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

    def prepare_directory(self) -> None:
        """Create the directory for unfinished files, after removing what an interrupted restore left there."""
        self._is_new = not self.fs.exists(self.path)
        self.remove_unfinished()
        make_durable_directory(self.fs, self.unfinished_path)

    def remove_unfinished(self) -> None:
        """Remove all files of an unfinished restore."""
        for doomed in (self.path,) if self._is_new else (*self._moved, self.unfinished_path):
            if self.fs.exists(doomed):
                self.fs.remove_tree(doomed)

    def move_into_place(self, nodes: list[int]) -> None:
        """Move the directories of all nodes to their final place."""
        for node in nodes:
            self.fs.sync_directory(f"{self.unfinished_path}/{node}")
        self.fs.sync_directory(self.unfinished_path)
        for node in nodes:
            path = f"{self.path}/{node}"
            self._moved.append(path)
            self.fs.rename(f"{self.unfinished_path}/{node}", path)
        self.fs.remove_tree(self.unfinished_path)
        self.fs.sync_directory(self.path)


async def restore_backup(
    storage: RemoteStorage,
    manifest: BackupManifest,
    request: RestoreRequest,
    target: RestoreTarget | None,
    now_ms: int,
    progress: Progress = lambda done, total: None,
) -> RestoreReport:
    """Restore a backup into the directory `target`. If `target` is None, only report what a restore would change.

    Raises `RestoreRefused`, `CorruptObject` for a damaged backup, `RemoteStorageError` and OSError. After an error the
    directory is empty.
    """
    restoring = _Restoring(storage, manifest, request, target, now_ms, progress)
    await restoring.prepare()
    if target is not None:
        target.check_empty_with_room(restoring.needed)
        target.prepare_directory()
    try:
        await restoring.run()
        if target is not None:
            target.move_into_place(restoring.nodes)
    except BaseException:
        restoring.close()
        if target is not None:
            target.remove_unfinished()
        raise
    return restoring.report


class _Restoring:
    def __init__(
        self,
        storage: RemoteStorage,
        manifest: BackupManifest,
        request: RestoreRequest,
        target: RestoreTarget | None,
        now_ms: int,
        progress: Progress,
    ) -> None:
        self._storage = storage
        self._manifest = manifest
        self._placement = request.placement
        self._target = target
        self._now_ms = now_ms
        self._progress = progress
        self._moment = restore_moment(manifest, request.time_ms)
        self._is_sure = has_all_decided_transactions(manifest, self._moment)
        self._image = MetadataImage()
        self._quorum = QuorumDescription()
        self._directories: dict[int, bytes] = {}
        self._logs: dict[TopicPartition, LogObserver] = {}
        self._states: dict[int, TransactionStateObserver] = {}
        self._writers: dict[TopicPartition, RestoredLogWriter] = {}
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
        self.nodes = restored_node_ids(self._image, self._quorum, self._placement)
        if self._target is not None:
            self._directories = {node: new_directory_id(self._target.entropy) for node in self.nodes}
        report, kept = (
            self.report,
            [topic for topic in self._manifest.topics if self._placement.includes_topic(topic.name)],
        )
        report.nodes, report.topic_count = self.nodes, len(kept)
        report.partition_count = sum(len(topic.partitions) for topic in kept)
        report.lowered_settings = lowered_min_insync_settings(self._image, self._placement)
        report.topics_with_expired_records = sorted(
            {key.topic for key, each in self._restored() if self._is_expired(key, each)}
        )

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
            for internal in sorted(INTERNAL_TOPICS & {name, renamed}):
                raise RestoreRefused(f"{name} cannot be renamed to {renamed}: {internal} is an internal topic")
        renamed_names = [placement.restored_name_of(name) for name in kept]
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
        keeps_ms = int(settings.get("retention.ms", RETENTION_MS_DEFAULT))
        if keeps_ms < 0 or "delete" not in settings.get("cleanup.policy", "delete"):
            return False
        oldest = next((piece.max_timestamp_ms for piece in backup.pieces if piece.size), -1)
        return 0 <= oldest < self._now_ms - keeps_ms

    @property
    def needed(self) -> int:
        """The number of bytes of all restored logs, on all nodes."""
        return sum(piece.size * len(self._replicas(key)) for key, each in self._restored() for piece in each.pieces)

    def _replicas(self, key: PartitionKey) -> tuple[int, ...]:
        partition = self._image.topics.partition(key.topic, key.partition)
        if partition is None:
            raise CorruptObject(f"the metadata of backup {self._manifest.backup_id} has no partition {key}")
        return restored_replicas(partition, self._placement)

    # Reading and writing the logs

    async def run(self) -> None:
        """Read all logs, write them, and make each of their transactions whole or absent in all logs."""
        always = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        internal = [each for each in self._manifest.partitions() if each[0].topic in always]
        others = [each for each in self._restored() if each[0].topic not in always]
        total = sum(piece.size for _, each in (*internal, *others) for piece in each.pieces)
        for key, backup in (*internal, *others):
            await self._read(key, backup, total)
        if self._moment.is_requested_time and total and not self.report.size:
            raise RestoreRefused(
                f"in the backup {self._manifest.backup_id} nothing is as old as {utc_time_text(self._moment.time_ms)}"
            )
        settlement = self.report.settlement = find_transaction_repairs(self._logs, self._states, self._moment.time_ms)
        self._settle_logs(settlement)
        await self._settle_offsets(settlement)
        await self._settle_share_states()
        self._settle_states(settlement)
        self._finish()

    async def _read(self, key: PartitionKey, backup: PartitionBackup, total: int) -> None:
        """Read the log of a partition to its end, and write its batches up to the restored moment."""
        partition = key.topic, key.partition
        observed: LogObserver | TransactionStateObserver
        if key.topic == TRANSACTIONS_TOPIC:
            decided = backup.end_offset if self._is_sure else self._manifest.transaction_log_ends.get(key.partition)
            observed = self._states[key.partition] = TransactionStateObserver(
                key.partition, backup.end_offset, decided, self._moment
            )
        else:
            observed = self._logs[partition] = LogObserver(
                backup.end_offset, self._moment, has_commits=key.topic == OFFSETS_TOPIC
            )
        writer = self._writer(key, backup)
        read = self._done
        try:
            async for header, batch in read_batches(self._storage, key, backup):
                goes_on = observed.observe_batch(header, batch)
                if header.base_offset < observed.moment_offset:
                    self.report.size += header.size
                    if writer is not None:
                        is_near = self._moment.is_near(header.max_timestamp)
                        writer.append_batch(header, batch, is_noted=header.is_control and is_near)
                read += header.size
                self._progress(read, total)
                if not goes_on:
                    break
        except MalformedMessage as malformed:
            raise CorruptObject(f"{key}: {malformed}") from None
        if writer is not None:
            writer.release()
        observed.finish_log(backup.start_offset)
        self._done += sum(piece.size for piece in backup.pieces)
        self._progress(self._done, total)
        if self._placement.includes_topic(key.topic):
            self._ends[partition] = observed.moment_offset
            if observed.first_cut_batch_ms is not None and observed.moment_offset < backup.end_offset:
                self.report.cut_logs.append(
                    CutLog(*partition, observed.moment_offset, backup.end_offset, observed.first_cut_batch_ms)
                )

    def _writer(self, key: PartitionKey, backup: PartitionBackup) -> RestoredLogWriter | None:
        if self._target is None or not self._placement.includes_topic(key.topic):
            return None
        name = partition_directory_name(self._placement.restored_name_of(key.topic), key.partition)
        segment_bytes = int(
            self._image.configs.settings_of(ResourceType.TOPIC, key.topic).get("segment.bytes", SEGMENT_BYTES_MAX)
        )
        writer = self._writers[key.topic, key.partition] = RestoredLogWriter(
            self._target.fs,
            [f"{self._target.unfinished_path}/{node}/{name}" for node in self._replicas(key)],
            key.topic_id,
            backup.start_offset,
            segment_bytes,
        )
        return writer

    # Applying the settlement

    def _settle_logs(self, settlement: TransactionRepairs) -> None:
        for partition, changes in settlement.marker_changes_by_log.items():
            writer, log = self._writers.get(partition), self._logs[partition]
            markers = list(appended_markers(log, changes, self._moment.time_ms))
            if partition in self._ends:
                self._ends[partition] += len(markers)
            if writer is None:
                continue
            for offset in sorted(changes.aborted_marker_offsets):
                writer.rewrite_batch(offset, abort_marker_for)
            for marker in markers:
                writer.append_batch(parse_header(marker), marker)
            writer.release()

    async def _settle_offsets(self, settlement: TransactionRepairs) -> None:
        """Move the committed offsets of groups that are past the end of a restored log back to that end."""
        for key, backup in self._restored():
            if key.topic != OFFSETS_TOPIC:
                continue
            partition = key.topic, key.partition
            log, changes = self._logs[partition], settlement.marker_changes_by_log.get(partition, MarkerChanges())
            offsets = RestoredGroupOffsets()
            async for header, batch in read_batches(self._storage, key, backup, log.end_offset):
                offsets.add_batch(restored_batch(header, batch, changes))
            for marker in appended_markers(log, changes, self._moment.time_ms):
                offsets.add_batch(marker)
            moved = offsets.moved_offsets(self._ends, self._placement.renames)
            self.report.moved_offsets += moved
            # First what is removed: the name may be the new name of another topic.
            moves = [each.removal() for each in moved] + [each.correction() for each in moved]
            records = [offset_record(each, self._moment.time_ms) for each in moves if each is not None]
            self._append(partition, log.last_epoch, records)

    async def _settle_share_states(self) -> None:
        """Cut the states of share groups that go past the end of a restored log."""
        ids, time_ms = self._image.topics.ids, self._moment.time_ms
        ends = {(ids[topic], index): end for (topic, index), end in self._ends.items()}
        for key, backup in self._restored():
            if key.topic != SHARE_STATE_TOPIC:
                continue
            log, states = self._logs[key.topic, key.partition], RestoredShareStates()
            async for _, batch in read_batches(self._storage, key, backup, log.end_offset):
                states.add_batch(batch)
            cut = states.cut_states(ends, time_ms)
            self.report.cut_share_states += cut
            records = [share_record_of(each.change(), time_ms) for each in cut]
            self._append((key.topic, key.partition), log.last_epoch, records)

    def _settle_states(self, settlement: TransactionRepairs) -> None:
        level = self._image.features.levels.get(TRANSACTION_VERSION, 0)
        for index, changes in settlement.state_changes_by_partition.items():
            records = [record_of(change, level, self._moment.time_ms) for change in changes]
            self._append((TRANSACTIONS_TOPIC, index), self._states[index].last_epoch, records)

    def _append(self, partition: TopicPartition, last_epoch: int, records: list[Record]) -> None:
        """Append records to a partition of an internal topic, if it is restored."""
        if partition not in self._ends:
            return
        writer = self._writers.get(partition)
        for start in range(0, len(records), APPENDED_RECORDS_MAX):
            offset = self._ends[partition]
            batch = build_batch(
                records[start : start + APPENDED_RECORDS_MAX],
                base_offset=offset,
                partition_leader_epoch=max(0, last_epoch),
            )
            header = parse_header(batch)
            self._ends[partition] = header.next_offset
            if writer is not None:
                writer.append_batch(header, batch)
        if writer is not None:
            writer.release()

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
            epochs[TRANSACTIONS_TOPIC, index] = max(states.last_epoch, coordinator_epoch)
        return epochs

    def _write_node(self, target: RestoreTarget, node: int, image: MetadataImage) -> None:
        fs, directory = target.fs, f"{target.unfinished_path}/{node}"
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
        names = {key: (self._placement.restored_name_of(key.topic), key.partition) for key in here}
        starts = {
            names[key]: each.start_offset
            for key, each in here.items()
            if each.pieces and each.pieces[0].first_offset < each.start_offset
        }
        write_offsets(fs, directory, LOG_START_CHECKPOINT, starts)
        ends = {names[key]: self._ends[key.topic, key.partition] for key in here}
        write_offsets(fs, directory, HIGH_WATERMARK_CHECKPOINT, ends)
        fs.sync_directory(f"{directory}/{METADATA_DIRECTORY}")
        cluster_id = self._manifest.cluster_id
        write_meta_properties(fs, directory, MetaProperties(cluster_id, node, self._directories[node]))

    def close(self) -> None:
        """Close the files of all logs."""
        for writer in self._writers.values():
            writer.close()


def _write_file(fs: FileSystem, path: str, parts: Iterator[bytes]) -> None:
    """Write the parts of a new file, and sync it."""
    file = fs.open(path, create=True)
    try:
        for part in parts:
            file.append([part])
        file.sync()
    finally:
        file.close()
