"""Snapshot files that controllers exchange: reads for a follower, writes of fetched parts."""

from __future__ import annotations

from moldau.kraft.snapshot.loading import LoadedSnapshot, load_snapshot
from moldau.kraft.snapshot.names import PART_SUFFIX, SUFFIX, SnapshotId
from moldau.protocol.primitives import BytesLike
from moldau.storage.files.port import File, FileSystem


class MetadataSnapshotFiles:
    """The snapshot files in the directory of the metadata log. Every method blocks on the disk: call the long ones in
    an executor thread."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._arriving: tuple[SnapshotId, File] | None = None
        self._refused: tuple[SnapshotId, OSError] | None = None
        """The snapshot for which the disk had no room, with the error."""

    def read(self, snapshot_id: SnapshotId, size: int, position: int) -> bytes:
        file = self._fs.open(self._path(snapshot_id), read_only=True)
        try:
            return file.pread(size, position)
        finally:
            file.close()

    def write_part(self, snapshot_id: SnapshotId, position: int, data: BytesLike) -> None:
        """Write the next bytes of a snapshot that is being fetched. Position 0 begins the file again.

        After a disk error further parts are dropped, and `finish` raises the error.
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
        """Make the fetched snapshot durable under its name.

        Returns its contents. Raises OSError and `MalformedMessage`: then the file is removed.
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
