"""Files of a table in a local directory that are durable before a snapshot names them.

pyiceberg does not sync the files that it writes, but SQLite syncs the commit of its catalog. After a power failure a
table could thus name files that are empty or missing. Here each file, and each directory with a new name, is synced
before the commit. An object store has made an object durable when it responds.
"""

from __future__ import annotations

from io import RawIOBase
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import PyArrowFileIO, PyArrowLocalFileSystem

from moldau.storage.files.local_files import LocalFiles


class SyncedFile(RawIOBase):
    """A file that is written from its beginning to its end. `close` makes its bytes and its name durable. Raises
    OSError if it cannot."""

    def __init__(self, path: str) -> None:
        """Make the file, and the directories of its path if they are missing. Raises OSError."""
        self._path = path
        make_durable_directory(Path(path).parent)
        self._stream = LocalFileSystem().open_output_stream(path)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return int(self._stream.write(data))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        self._stream.close()
        fs = LocalFiles()
        file = fs.open(self._path, read_only=True)
        try:
            file.sync()
        finally:
            file.close()
        fs.sync_directory(str(Path(self._path).parent))


class DurableFileSystem(PyArrowLocalFileSystem):  # type: ignore[misc]
    """pyiceberg's file system for the local machine, with files that are durable once they are closed."""

    def open_output_stream(self, path: str, *_: Any, **__: Any) -> Any:
        return SyncedFile(path)


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """pyiceberg's access to the files of a table, wherever they are. Files on the local machine are durable once they
    are closed."""

    def _initialize_local_fs(self) -> DurableFileSystem:
        return DurableFileSystem()


def make_durable_directory(path: Path) -> None:
    """Make a directory and its parents if they are missing, durably. Raises OSError."""
    if path.is_dir():
        return
    make_durable_directory(path.parent)
    path.mkdir(exist_ok=True)
    LocalFiles().sync_directory(str(path.parent))
