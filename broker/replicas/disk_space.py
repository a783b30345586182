"""The log directories on full disks."""

from __future__ import annotations

import logging

from moldau.storage.files.disk_errors import NO_SPACE
from moldau.storage.files.port import FileSystem

log = logging.getLogger("moldau.logs")


class DiskSpace:
    """The log directories whose disks are full. `refused` counts failed writes; `look`, a periodic job, checks the full
    disks for free space.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.refusals = 0
        """The number of writes that failed for lack of space, since the start."""
        self.descriptor_refusals = 0
        """The number of operations that failed for lack of file descriptors, since the start."""
        self._full: dict[str, int] = {}
        """For each full log directory, by path, its number of failed writes at the last check."""
        self._counts: dict[str, int] = {}

    @property
    def full(self) -> tuple[str, ...]:
        """The paths of the log directories on a full disk."""
        return tuple(self._full)

    def refused(self, path: str, error: OSError) -> None:
        """Note that an operation in a log directory failed because of a full disk or another transient error."""
        if error.errno not in NO_SPACE:
            self.descriptor_refusals += 1
            if self.descriptor_refusals & (self.descriptor_refusals - 1) == 0:
                log.error(
                    "%d operations on log files failed for lack of file descriptors, raise the limit: %s",
                    self.descriptor_refusals,
                    error,
                )
            return
        self.refusals += 1
        self._counts[path] = self._counts.get(path, 0) + 1
        if path not in self._full:
            self._full[path] = 0
            log.error(
                "the disk of log directory %s is full: appends to its partitions are refused until it has space,"
                " consumers go on reading: %s",
                path,
                error,
            )

    def look(self) -> None:
        """Check the full disks. A disk is not full any more when it has free space and no write has failed since the
        last check.
        """
        for path, seen in tuple(self._full.items()):
            count = self._counts[path]
            self._full[path] = count
            if seen == count and self._has_room(path):
                del self._full[path]
                log.info("log directory %s has space again, after %d failed writes", path, self._counts.pop(path))

    def _has_room(self, path: str) -> bool:
        try:
            return self._fs.disk_usage(path)[1] > 0
        except OSError:
            return False
