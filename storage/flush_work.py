"""The part of a flush that waits for the disk, to be run in a thread."""

from __future__ import annotations

from storage.disk_errors import NO_SPACE
from storage.files import FileSystem, write_atomically
from storage.open_file import OpenFile


class FlushWork:
    """Makes a log durable up to an offset. Run it once: after an error the log is lost to us, never synced again."""

    __slots__ = ("_checkpoint", "_directories", "_files", "_fs", "_paths", "end_offset", "is_abandoned", "is_complete")

    def __init__(
        self,
        fs: FileSystem,
        files: list[OpenFile],
        paths: list[str],
        checkpoint: tuple[str, bytes] | None,
        directories: list[str],
        end_offset: int,
    ) -> None:
        self._fs = fs
        self._files = files
        self._paths = paths
        self._checkpoint = checkpoint
        self._directories = directories
        self.end_offset = end_offset
        self.is_abandoned = False
        """The log was closed meanwhile; its directory may be gone, and nobody needs it to be durable."""
        self.is_complete = False
        """Everything is durable. Without it the batches are, and a full disk had no room for the checkpoint."""

    def run(self) -> None:
        """Blocks for as long as the disk takes. Raises OSError: a sync failed."""
        try:
            self._sync()
        except FileNotFoundError:
            if not self.is_abandoned:
                raise

    def _sync(self) -> None:
        for open_file in self._files:
            open_file.file.sync()
        for path in self._paths:
            written = OpenFile(self._fs.open(path))
            written.file.sync()
        self.is_complete = self._checkpoint is None or self._write_checkpoint(*self._checkpoint)
        synced = self._checkpoint[0].rpartition("/")[0] if self._checkpoint and self.is_complete else None
        for directory in self._directories:
            if directory != synced:  # the checkpoint's was synced with it
                self._fs.sync_directory(directory)

    def _write_checkpoint(self, path: str, data: bytes) -> bool:
        try:
            write_atomically(self._fs, path, data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return False
        return True
