"""A file system with fault injection: its operations can be slow or fail."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from time import sleep

from moldau.broker.faults.fault import FaultSubject
from moldau.broker.faults.faults import Faults
from moldau.protocol.primitives import BytesLike
from moldau.storage.files.port import File, FileSystem


class FaultyFiles:
    """A file system whose files check for faults before they append, read or sync. All other calls go to the real file
    system.
    """

    def __init__(self, files: FileSystem, faults: Faults) -> None:
        self._files = files
        self._faults = faults
        self._meeting = threading.Lock()

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        file = self._files.open(path, create=create, read_only=read_only)
        return FaultyFile(file, path, self.check_fault)  # type: ignore[return-value]  # all other methods are the file's

    def check_fault(self, operation: str, path: str) -> None:
        """Check for a fault before a file operation: wait if the fault delays it, and raise OSError if the fault makes
        it fail.
        """
        faults = self._faults
        if not faults.slow_or_failing_files:
            return
        with self._meeting:
            fault = faults.fault_for(FaultSubject(disk=operation, path=path))
        if fault is None:
            return
        action = fault.action
        if action.delay_ms is not None:
            sleep(action.delay_ms / 1000)
        if action.disk_error is not None:
            number = getattr(errno, action.disk_error)
            raise OSError(number, f"{os.strerror(number)} (fault {fault.name})", path)


class FaultyFile:
    """A file that checks for faults before it appends, reads or syncs."""

    def __init__(self, file: File, path: str, meet: Callable[[str, str], None]) -> None:
        self._file = file
        self._path = path
        self._meet = meet

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def append(self, buffers: Sequence[BytesLike]) -> int:
        self._meet("append", self._path)
        return self._file.append(buffers)

    def pread(self, size: int, position: int) -> bytes:
        self._meet("read", self._path)
        return self._file.pread(size, position)

    def sync(self) -> None:
        self._meet("sync", self._path)
        self._file.sync()

    def fileno(self) -> None:
        """Return None, so that responses are made by reading the file, which a fault can slow down or make fail."""

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        """Return None, so that each read is made in a thread, because a fault may slow it down."""
        return None

    def is_cached(self, size: int, position: int) -> bool:
        return False
