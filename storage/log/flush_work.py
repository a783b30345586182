"""The part of a flush that waits for the disk, to be run in a thread."""

from __future__ import annotations

from storage.files.disk_errors import NO_DESCRIPTOR, NO_SPACE
from storage.files.open_file import OpenFile
from storage.files.port import FileSystem, sync_or_evict, write_atomically
from storage.segment.segment import Segment


class FlushWork:
    """Makes a log durable up to an offset. Run it once: after an error the log is lost to us, never synced again."""

    __slots__ = (
        "_checkpoint",
        "_directories",
        "_files",
        "_fs",
        "end_offset",
        "is_abandoned",
        "is_complete",
        "is_postponed",
        "paths",
        "segments",
    )

    def __init__(
        self,
        fs: FileSystem,
        segments: list[Segment],
        paths: list[str],
        checkpoint: tuple[str, bytes] | None,
        directories: list[str],
        end_offset: int,
    ) -> None:
        self._fs = fs
        self.segments = segments
        self._files = [file for segment in segments for file in segment.files_to_sync()]
        self.paths = paths
        self._checkpoint = checkpoint
        self._directories = directories
        self.end_offset = end_offset
        self.is_abandoned = False
        """The log was closed meanwhile; its directory may be gone, and nobody needs it to be durable."""
        self.is_complete = False
        """Everything is durable. Without it the batches are, and a full disk had no room for the checkpoint."""
        self.is_postponed = False
        """There were too many open files. No sync failed, and another flush may do what is left."""

    def run(self) -> None:
        """Blocks for as long as the disk takes. Raises OSError: a sync failed."""
        try:
            self._sync()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                self.is_postponed = True
            elif not self.is_abandoned or not isinstance(error, FileNotFoundError):
                raise

    def _sync(self) -> None:
        for file in self._files:
            if isinstance(file, OpenFile):
                sync_or_evict(file.file)
            elif self._fs.exists(file):  # retention may have taken the segment away
                self._sync_path(file)
        for path in self.paths:
            self._sync_path(path)
        self.is_complete = self._checkpoint is None or self._write_checkpoint(*self._checkpoint)
        synced = self._checkpoint[0].rpartition("/")[0] if self._checkpoint and self.is_complete else None
        for directory in self._directories:
            if directory != synced:  # the checkpoint's was synced with it
                self._fs.sync_directory(directory)

    def _sync_path(self, path: str) -> None:
        opened = OpenFile(self._fs.open(path))
        sync_or_evict(opened.file)

    def _write_checkpoint(self, path: str, data: bytes) -> bool:
        try:
            write_atomically(self._fs, path, data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return False
        return True
