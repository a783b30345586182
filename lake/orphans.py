"""Orphans: the files of attempts that did not become part of a table, and the files that only expired snapshots have
named.

| file                    | recognised by                              | deleted if                                  |
|-------------------------|--------------------------------------------|---------------------------------------------|
| data file               | its name begins with the id of an attempt  | no snapshot has it                          |
| manifest, manifest list | its name has the id of an attempt          | no snapshot has it                          |
| metadata of the table   | its version is not above that of the table | the log of versions does not name it        |

The ids of attempts are UUIDs of version 8 that begin with the bytes of `moldau`, so files of other programs are not
taken for orphans.

Another process may be about to claim the table while its files are listed. So a sweep commits between the listing and
the deletion (`sink.py`). An attempt that has written one of the listed files was made from an earlier snapshot, and
cannot be committed after that. Metadata of a version that the table has reached cannot be committed either, because a
commit replaces the version that it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from pyarrow.fs import FileInfo, FileSelector, FileSystem  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from moldau.tables.refusals import warn

MARK: Final = b"moldau"
ATTEMPT_NAME: Final = re.compile(rf"{MARK[:4].hex()}-{MARK[4:].hex()}-8[0-9a-f]{{3}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}")
METADATA_NAME: Final = re.compile(r"(\d{5,})-[0-9a-f-]{36}\.metadata\.json")
ATTEMPT_RANDOM_SIZE: Final = 10
"""The random bytes in the id of an attempt."""
FoundFile: TypeAlias = "tuple[FileSystem, str]"
"""A file that was listed: its file system, and its path there."""


def attempt_id(random: bytes) -> UUID:
    """Make the id of an attempt: a UUID of version 8 from ten random bytes."""
    return UUID(bytes=MARK + bytes([0x80 | random[0] & 0x0F, random[1], 0x80 | random[2] & 0x3F]) + random[3:])


def listed_files(table: Table, *, owns_metadata: bool) -> list[FoundFile]:
    """List the files below a table that may be orphans. `owns_metadata`: this program made the table, so old versions
    of its metadata are among them. Raises OSError."""
    io = table.io
    if isinstance(io, PyArrowFileIO):
        return list(_candidates(table, io, owns_metadata=owns_metadata))
    warn(f"{table.name()}: {type(io).__name__} lists no files, and files of attempts that failed are not deleted")
    return []


def unneeded(table: Table, found: Sequence[FoundFile]) -> list[FoundFile]:
    """Return the files in `found` that a table does not need. Raises OSError."""
    io = table.io
    if not found or not isinstance(io, PyArrowFileIO):
        return []
    needed = {_path(io, each) for each in referenced_files(table)}
    return [(fs, path) for fs, path in found if path not in needed]


def unneeded_data(table: Table) -> list[FoundFile]:
    """The Parquet files below a table that no snapshot names, also those of other programs. Empty if the files cannot
    be listed. A writer that is at work may be about to commit some of them. Raises OSError."""
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return []
    found = _files_below(table, io, "write.data.path", "data")
    return unneeded(table, [(fs, each.path) for fs, each in found if each.extension == "parquet"])


def has_files_of_attempts(table: Table) -> bool:
    """Whether attempts of this program have written files below the location of a table. Raises OSError."""
    io = table.io
    return isinstance(io, PyArrowFileIO) and any(True for _ in _candidates(table, io, owns_metadata=False))


def referenced_files(table: Table) -> Iterator[str]:
    """Yield the locations of all files that the snapshots of a table need, and of the versions of its metadata."""
    yield table.metadata_location
    yield from (each.metadata_file for each in table.metadata.metadata_log)
    met = set()
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in met:
                continue
            met.add(manifest.manifest_path)
            yield manifest.manifest_path
            yield from (each.data_file.file_path for each in manifest.fetch_manifest_entry(table.io))


def _candidates(table: Table, io: PyArrowFileIO, *, owns_metadata: bool) -> Iterator[FoundFile]:
    """Yield the files below a table that may be orphans: those that an attempt of this program has written and, with
    `owns_metadata`, the versions of the metadata that the table has reached."""
    version = _version(table.metadata_location) if owns_metadata else -1
    for setting, folder in (("write.data.path", "data"), ("write.metadata.path", "metadata")):
        for fs, each in _files_below(table, io, setting, folder):
            written = METADATA_NAME.fullmatch(each.base_name)
            if ATTEMPT_NAME.search(each.base_name) or (
                owns_metadata and written is not None and int(written[1]) <= version
            ):
                yield fs, each.path


def _files_below(table: Table, io: PyArrowFileIO, setting: str, folder: str) -> Iterator[tuple[FileSystem, FileInfo]]:
    """Yield the files in a folder of a table. The property `setting` of the table may place the folder elsewhere."""
    scheme, netloc, path = io.parse_location(table.metadata.properties.get(setting, f"{table.location()}/{folder}"))
    fs = io.fs_by_scheme(scheme, netloc)
    for each in fs.get_file_info(FileSelector(path, recursive=True, allow_not_found=True)):
        if each.is_file:
            yield fs, each


def _version(location: str) -> int:
    found = METADATA_NAME.fullmatch(location.rpartition("/")[2])
    return int(found[1]) if found else -1


def _path(io: PyArrowFileIO, location: str) -> str:
    path: str = io.parse_location(location)[2]
    return path
