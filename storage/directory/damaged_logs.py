"""The damaged logs of a log directory: kept as they are, not served, and repaired when the controller permits it.

A damaged log stays in place with its offsets in the checkpoints, so that a restart finds it as it was. A repair moves
the damaged segment and all later ones to a stray directory. That removes acknowledged records from this replica, so it
happens only after the controller has removed the replica from the in-sync set.
"""

from __future__ import annotations

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.checkpoints.partition_metadata import CorruptPartitionMetadata, read_topic_id
from moldau.storage.checkpoints.text_checkpoint import OffsetsByPartition, TopicPartition
from moldau.storage.directory.directory_checkpoints import DirectoryCheckpoints
from moldau.storage.files.log_paths import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    partition_directory_name,
    suffixed_directory_name,
)
from moldau.storage.files.port import FileSystem, make_durable_directory
from moldau.storage.log.damaged_log import Damage, find_damage, move_log_aside, move_segments_aside
from moldau.storage.log.log import Log
from moldau.storage.log.recovery import CorruptLog, RecoveryReport
from moldau.storage.log_config import LogConfig


class CheckpointedOffsets(NamedTuple):
    """The offsets that the checkpoints keep for a log that is not served."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int


class RepairedLog(NamedTuple):
    """A log after the repair, without its damaged part. It may be empty."""

    log: Log
    damage: Damage | None
    """The damage that the repair found in the log; None if it found none."""
    stray_path: str
    """The path of the stray directory for the segments that were moved away. It exists only if there were any."""


class DamagedLogs:
    """The damaged logs of a directory by partition, with the offsets that the checkpoints keep for them."""

    __slots__ = ("_checkpoints", "_offsets", "_path", "fs")

    def __init__(self, fs: FileSystem, path: str, checkpoints: DirectoryCheckpoints) -> None:
        self.fs = fs
        self._path = path
        self._checkpoints = checkpoints
        self._offsets: dict[TopicPartition, CheckpointedOffsets] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, key: TopicPartition, offsets: CheckpointedOffsets) -> None:
        """Add a log that was found damaged while it was served, or that cannot be opened, with the offsets that the
        checkpoints keep.
        """
        self._offsets[key] = offsets
        self._checkpoints.set_log_offsets(key, offsets.log_start_offset or None, offsets.recovery_point, None)
        self._checkpoints.set_high_watermark(key, offsets.high_watermark)

    def add_unopened(self, topic: str, partition: int) -> None:
        """Add a log that was found damaged when it was opened. The checkpoints keep the offsets of the previous
        process.
        """
        key = (topic, partition)
        known = self._checkpoints
        offsets = CheckpointedOffsets(
            known.recovery_points.get(key, 0), known.log_start_offsets.get(key, 0), known.high_watermarks.get(key, 0)
        )
        self.add(key, offsets)

    def drop_repaired_log(self, key: TopicPartition) -> None:
        """Remove a log that is served again; no effect if it is not in the collection."""
        self._offsets.pop(key, None)

    def high_watermarks(self) -> OffsetsByPartition:
        return {key: offsets.high_watermark for key, offsets in self._offsets.items()}

    def may_belong_to(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Whether the damaged log of a partition may belong to the topic with this id: its partition.metadata names the
        id, or cannot be read. Raises OSError."""
        try:
            return read_topic_id(self.fs, f"{self._path}/{partition_directory_name(topic, partition)}") == topic_id
        except CorruptPartitionMetadata:
            return True

    def repair_log(
        self, topic: str, partition: int, config: LogConfig, now_ms: int, report: RecoveryReport, unique: str
    ) -> RepairedLog:
        """Repair a log: move the segment with the first damaged batch and all later ones to a stray directory, and open
        the rest. If the rest cannot be opened either, move everything, and open an empty log.

        `unique` is part of the stray directory's name. May run in an executor thread; blocks while the log is read.
        `LogDirectory.serve_log` then serves the log. Raises OSError.
        """
        path = f"{self._path}/{partition_directory_name(topic, partition)}"
        aside = f"{self._path}/{suffixed_directory_name(topic, partition, unique, STRAY_SUFFIX)}"
        offsets = self._offsets[topic, partition]
        damage = find_damage(self.fs, path)
        recovery_point = offsets.recovery_point
        if damage is not None:
            make_durable_directory(self.fs, aside)
            move_segments_aside(self.fs, path, aside, damage.segment_base_offset)
            recovery_point = min(recovery_point, damage.segment_base_offset)
        offsets = offsets._replace(recovery_point=recovery_point)
        try:
            return RepairedLog(self._reopened(path, offsets, config, now_ms, report), damage, aside)
        except (CorruptLog, CorruptPartitionMetadata) as error:
            # The remaining part cannot be opened either: the log begins empty, and its leader sends all records again.
            make_durable_directory(self.fs, aside)
            move_log_aside(self.fs, path, aside)
            empty = self._reopened(path, offsets._replace(recovery_point=0), config, now_ms, report)
            return RepairedLog(empty, damage or Damage(0, str(error)), aside)

    def _reopened(
        self, path: str, offsets: CheckpointedOffsets, config: LogConfig, now_ms: int, report: RecoveryReport
    ) -> Log:
        log = Log.open(
            self.fs,
            path,
            config,
            recovery_point=offsets.recovery_point,
            log_start_offset=offsets.log_start_offset,
            now_ms=now_ms,
            report=report,
        )
        if log.unflushed_count >= config.flush_messages:
            log.flush(now_ms)
        return log

    def remove(self, topic: str, partition: int, unique: str, suffix: str = DELETE_SUFFIX) -> str:
        """Rename the directory of a damaged log whose partition is not on this broker any more. Returns the new path.
        Raises OSError.
        """
        del self._offsets[topic, partition]
        self._checkpoints.remove_log((topic, partition))
        new = f"{self._path}/{suffixed_directory_name(topic, partition, unique, suffix)}"
        self.fs.rename(f"{self._path}/{partition_directory_name(topic, partition)}", new)
        return new
