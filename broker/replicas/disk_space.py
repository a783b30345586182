"""Which disks are full: noticed where one refuses, over when it has room and refuses no more."""

from __future__ import annotations

import logging

from storage.files.disk_errors import NO_SPACE
from storage.files.port import FileSystem

log = logging.getLogger("moldau.logs")


class DiskSpace:
    """`refused` takes note in the midst of a request; `look` asks the disks, now and then."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.refusals = 0
        """For lack of room, since the start."""
        self.descriptor_refusals = 0
        """For lack of file descriptors, since the start."""
        self._full: dict[str, int] = {}
        """By the path of a log directory, how many refusals there had been when somebody last looked."""
        self._counts: dict[str, int] = {}

    @property
    def full(self) -> tuple[str, ...]:
        """The paths of log directories whose disk has no room."""
        return tuple(self._full)

    def refused(self, path: str, error: OSError) -> None:
        if error.errno not in NO_SPACE:
            self.descriptor_refusals += 1
            if self.descriptor_refusals & (self.descriptor_refusals - 1) == 0:
                log.error("%d requests found no file descriptor: %s", self.descriptor_refusals, error)
            return
        self.refusals += 1
        self._counts[path] = self._counts.get(path, 0) + 1
        if path not in self._full:
            self._full[path] = 0
            log.error("%s is full: nothing is taken there until it has room; it goes on being read: %s", path, error)

    def look(self) -> None:
        """A disk has room again when it says so and nobody was refused since the last look."""
        for path, seen in tuple(self._full.items()):
            count = self._counts[path]
            self._full[path] = count
            if seen == count and self._has_room(path):
                del self._full[path]
                log.info("%s has room again, after %d refusals", path, self._counts.pop(path))

    def _has_room(self, path: str) -> bool:
        try:
            return self._fs.disk_usage(path)[1] > 0
        except OSError:
            return False
