"""Snapshot files that controllers exchange: reads bytes for a follower, and writes the bytes that were fetched from the
leader.

`SnapshotPolicy` decides when a snapshot is due: after a number of bytes in the log, or after an interval (KIP-630,
KIP-876).
"""

from __future__ import annotations

from moldau.broker.config.config import Config
from moldau.kraft.snapshot.batches import LoadedSnapshot, load_snapshot
from moldau.kraft.snapshot.names import PART_SUFFIX, SUFFIX, SnapshotId
from moldau.protocol.primitives import BytesLike
from moldau.storage.files.port import File, FileSystem


class MetadataSnapshotFiles:
    """The snapshot files in the directory of the metadata log. Every method blocks on the disk. Callers run the long
    ones in an executor thread.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._arriving: tuple[SnapshotId, File] | None = None
        self._refused: tuple[SnapshotId, OSError] | None = None
        """The snapshot that could not be written, with the disk's error."""

    def read(self, snapshot_id: SnapshotId, size: int, position: int) -> bytes:
        file = self._fs.open(self._path(snapshot_id), read_only=True)
        try:
            return file.pread(size, position)
        finally:
            file.close()

    def write_part(self, snapshot_id: SnapshotId, position: int, data: BytesLike) -> None:
        """Write bytes of a snapshot that is being fetched. Position 0 begins the file again.

        After a disk error the further bytes of the snapshot are dropped, and `finish` raises the error.
        """
        if position == 0:
            self._refused = None
        if self._refused is not None and self._refused[0] == snapshot_id:
            return
        try:
            self._write(snapshot_id, position, data)
        except OSError as error:
            self._refused = snapshot_id, error

    def _write(self, snapshot_id: SnapshotId, position: int, data: BytesLike) -> None:
        if position == 0:
            self._begin(snapshot_id)
        assert self._arriving is not None and self._arriving[0] == snapshot_id, "a part of another snapshot"
        _, file = self._arriving
        assert file.size() == position, f"a part at {position} after {file.size()} bytes"
        file.append([data])

    def finish(self, snapshot_id: SnapshotId) -> LoadedSnapshot:
        """Make a snapshot that was fetched completely durable, and give the file its final name.

        Returns the contents. Raises OSError and `MalformedMessage`, and then removes the file.
        """
        if self._refused is not None and self._refused[0] == snapshot_id:
            refusal, self._refused = self._refused[1], None
            self._drop_arriving()
            raise refusal
        assert self._arriving is not None and self._arriving[0] == snapshot_id, "another snapshot"
        _, file = self._arriving
        self._arriving = None
        part = self._part_path(snapshot_id)
        try:
            loaded = load_snapshot(file.pread(file.size(), 0), snapshot_id)
            file.sync()
        except BaseException:
            file.close()
            self._fs.unlink(part)
            raise
        file.close()
        self._fs.rename(part, self._path(snapshot_id))
        self._fs.sync_directory(self._directory)
        return loaded

    def _drop_arriving(self) -> None:
        if self._arriving is not None:
            arriving, file = self._arriving
            self._arriving = None
            file.close()
            self._fs.unlink(self._part_path(arriving))

    def _begin(self, snapshot_id: SnapshotId) -> None:
        self._drop_arriving()
        path = self._part_path(snapshot_id)
        if self._fs.exists(path):
            self._fs.unlink(path)
        self._arriving = snapshot_id, self._fs.open(path, create=True)

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_id.file_name}"

    def _part_path(self, snapshot_id: SnapshotId) -> str:
        return self._path(snapshot_id).removesuffix(SUFFIX) + PART_SUFFIX


class SnapshotPolicy:
    """Decides when a snapshot of the metadata is due. At most one is written at a time. The limits are Kafka's
    settings, in bytes and milliseconds.
    """

    def __init__(self, config: Config, now_ms: int) -> None:
        self._bytes_max = config.integer("metadata.log.max.record.bytes.between.snapshots")
        self._interval_ms = config.integer("metadata.log.max.snapshot.interval.ms")
        self.retention_bytes = config.integer("metadata.max.retention.bytes")
        self.retention_ms = config.integer("metadata.max.retention.ms")
        self._bytes = 0
        self.last_ms = now_ms
        """The time (ms, monotonic clock) at which the newest snapshot was begun, or at which this node started."""
        self._is_running = False

    def note_appended(self, size: int) -> None:
        self._bytes += size

    def is_due(self, now_ms: int) -> bool:
        """Whether a snapshot is due and none is being written. An interval of 0 disables snapshots by time."""
        is_late = self._interval_ms > 0 and now_ms >= self.last_ms + self._interval_ms
        return not self._is_running and (self._bytes >= self._bytes_max or is_late)

    def note_begun(self, now_ms: int) -> None:
        """Note that writing a snapshot has begun. Bytes that are appended from now on count towards the next
        snapshot.
        """
        self._is_running = True
        self._bytes = 0
        self.last_ms = now_ms

    def note_ended(self) -> None:
        self._is_running = False
