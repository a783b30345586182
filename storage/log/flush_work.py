"""The part of a flush that waits for the disk. It runs in an executor thread."""

from __future__ import annotations

from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import (
    DESCRIPTOR_LIMIT_ERRNOS,
    DISK_FULL_ERRNOS,
    FileSystem,
    sync_or_evict,
    write_atomically,
)
from moldau.storage.segment.segment import Segment


class FlushWork:
    """The files to sync so that a log is durable up to `end_offset`.

    Batches are synced before the leader epoch checkpoint, and the checkpoint before the directory. So after a crash in
    between, no file name refers to missing batches. The checkpoint names an epoch of missing batches only if a work
    with `writes_only_epochs` has written that epoch before. `sync_files` is called once, because a log with a failed
    sync has failed.
    """

    __slots__ = (
        "_checkpoints",
        "_cuts",
        "_directories",
        "_files",
        "_fs",
        "end_offset",
        "is_abandoned",
        "is_complete",
        "is_postponed",
        "paths",
        "segments",
        "writes_only_epochs",
    )

    def __init__(
        self,
        fs: FileSystem,
        segments: list[Segment],
        paths: list[str],
        checkpoints: list[tuple[str, bytes]],
        directories: list[str],
        end_offset: int,
        *,
        is_of_epochs: bool = False,
    ) -> None:
        self._fs = fs
        self.segments = segments
        self._cuts = [(each, each.uncut_file, each.size) for each in segments if each.uncut_file is not None]
        self._files = [file for segment in segments for file in segment.files_to_sync()]
        self.paths = paths
        self._checkpoints = checkpoints
        self._directories = directories
        self.end_offset = end_offset
        self.writes_only_epochs = is_of_epochs
        """Whether this only writes the leader epoch checkpoint, and makes no batch durable."""
        self.is_abandoned = False
        """Whether the log was closed while the work was under way. Its directory may have been deleted, so a missing
        file does not count as an error."""
        self.is_complete = False
        """Whether batches and checkpoints are durable. False if a full disk had no room for a checkpoint; the batches
        alone are durable then.
        """
        self.is_postponed = False
        """Whether the work gave up because too many files were open. Another flush can sync the remaining files."""

    @property
    def writes_checkpoints(self) -> bool:
        """Whether this writes checkpoint files of the log, such as that of the leader epochs."""
        return bool(self._checkpoints)

    def sync_files(self) -> None:
        """Sync the files and write the checkpoints. Blocks until the disk is done. Raises OSError if a sync failed,
        after which the log has failed."""
        try:
            self._sync()
        except OSError as error:
            if error.errno in DESCRIPTOR_LIMIT_ERRNOS:
                self.is_postponed = True
            elif not self.is_abandoned or not isinstance(error, FileNotFoundError):
                raise

    def note_cut(self) -> None:
        """Note the files that were cut, after the work has run. A segment that was truncated again meanwhile is left to
        the next flush."""
        for segment, opened, size in self._cuts:
            if segment.uncut_file is opened and segment.size == size:
                segment.uncut_file = None

    def _sync(self) -> None:
        for _, opened, size in self._cuts:
            if not self.is_abandoned:
                opened.file.truncate(size)
                sync_or_evict(opened.file)
        for file in self._files:
            if isinstance(file, OpenFile):
                sync_or_evict(file.file)
            else:
                self._sync_path(file)
        for path in self.paths:
            self._sync_path(path)
        if self.is_abandoned:
            return  # Another log may have the paths of the checkpoints: its topic has the same name.
        # After the batches: epochs of batches that a loss of power takes must not survive them.
        written = [self._write_checkpoint(*each) for each in self._checkpoints]
        self.is_complete = all(written)
        synced = self._checkpoints[0][0].rpartition("/")[0] if self._checkpoints and self.is_complete else None
        for directory in self._directories:
            if directory != synced:  # The write of the checkpoint has synced that file.
                self._fs.sync_directory(directory)

    def _sync_path(self, path: str) -> None:
        """Sync a file, unless retention or a truncation has deleted it meanwhile."""
        try:
            opened = OpenFile(self._fs.open(path))
        except FileNotFoundError:
            return
        sync_or_evict(opened.file)

    def _write_checkpoint(self, path: str, data: bytes) -> bool:
        try:
            write_atomically(self._fs, path, data)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            return False
        return True
