"""Snapshots of the metadata that travel between controllers: bytes read for a peer, parts written as they arrive."""

from __future__ import annotations

from kraft.snapshot.loading import LoadedSnapshot, load_snapshot
from kraft.snapshot.names import PART_SUFFIX, SUFFIX, SnapshotId
from protocol.primitives import BytesLike
from storage.files import File, FileSystem


class SnapshotFiles:
    """In the directory of the metadata log. Everything blocks on the disk; what is large is called off the loop."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._arriving: tuple[SnapshotId, File] | None = None

    def read(self, snapshot_id: SnapshotId, size: int, position: int) -> bytes:
        file = self._fs.open(self._path(snapshot_id), read_only=True)
        try:
            return file.pread(size, position)
        finally:
            file.close()

    def write_part(self, snapshot_id: SnapshotId, position: int, data: BytesLike) -> None:
        """The next bytes of a snapshot that is being fetched; position 0 begins it anew. Raises OSError."""
        if position == 0:
            self._begin(snapshot_id)
        assert self._arriving is not None and self._arriving[0] == snapshot_id, "a part of another snapshot"
        _, file = self._arriving
        assert file.size() == position, f"a part at {position} after {file.size()} bytes"
        file.append([data])

    def finish(self, snapshot_id: SnapshotId) -> LoadedSnapshot:
        """Make the fetched snapshot durable under its name; the state that it stands for. Raises OSError and
        `MalformedMessage`: then it is gone again."""
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

    def _begin(self, snapshot_id: SnapshotId) -> None:
        if self._arriving is not None:
            arriving, file = self._arriving
            file.close()
            self._fs.unlink(self._part_path(arriving))
        path = self._part_path(snapshot_id)
        if self._fs.exists(path):
            self._fs.unlink(path)
        self._arriving = snapshot_id, self._fs.open(path, create=True)

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_id.file_name}"

    def _part_path(self, snapshot_id: SnapshotId) -> str:
        return self._path(snapshot_id).removesuffix(SUFFIX) + PART_SUFFIX
