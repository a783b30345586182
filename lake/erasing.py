"""Erases rows from a table: those of the records that erase orders have removed from the log (decision 36).

    claim     become the writer of the table. A running follower ends, because it may have read the records before they
              were erased.
    rewrite   replace the files that have such rows by files without them, in one commit. The ledger counts the records
              as never read.
    commit    once more, without a change, because the manifests of the first commit still describe the replaced files,
              with the bounds of their keys
    expire    every other snapshot with a file that has such rows, unless a branch or a tag of another program holds it
    delete    the files that no snapshot names any more

A process that ends in between leaves the table consistent, and the next process continues with what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow.fs import FileSystem  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot

from moldau.lake.columns import PLACE
from moldau.lake.dead_letters import SUFFIX
from moldau.lake.ledger import RecordDigests
from moldau.lake.offset_runs import WORD, OffsetDigest, add_digests, digests_by_partition
from moldau.lake.orphans import unneeded_data
from moldau.lake.sink import CommitAttempt, LakeTable, NewTable, SinkPorts, ledger_of
from moldau.lake.stored_rows import rows_of_file, stored_rows
from moldau.protocol.primitives import crc32c
from moldau.tables.refusals import Refused

CHUNK_SIZE: Final = 4 << 20


@dataclass(slots=True)
class ErasureResult:
    """The result of erasing rows from one table."""

    table: str
    rows: int = 0
    files: list[dict[str, Any]] = field(default_factory=list)
    """For each file that was replaced: its path, its CRC-32C, and how many of its rows were erased."""
    written: list[dict[str, Any]] = field(default_factory=list)
    """For each file that replaces them: its path and its CRC-32C."""
    snapshots_expired: int = 0
    kept_by: list[str] = field(default_factory=list)
    """The branches and tags whose snapshots still have rows of erased records."""
    unread: list[int] = field(default_factory=list)
    """The partitions with erased records that the table had not read yet. A replica that still has these records may
    add them to the table later."""

    def stated(self) -> dict[str, Any]:
        """The result as the fields of a receipt."""
        return asdict(self) | {"state": "not erased" if self.kept_by else "erased"}


class ErasedOffsets:
    """The offsets of erased records, by partition."""

    def __init__(self, runs: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        """`runs`: the first and the last offset (inclusive) of each run of erased offsets, by partition. The runs are
        disjoint."""
        self.runs = {each: np.array(sorted(of), np.int64) for each, of in runs.items() if of}

    def among(self, rows: pa.RecordBatch) -> pa.Array:
        """Return a mask of the rows of erased records, by their `partition` and `offset`."""
        partitions, offsets = (np.asarray(rows.column(name)) for name in PLACE[:2])
        found = np.zeros(len(offsets), np.bool_)
        for partition, runs in self.runs.items():
            slots = np.searchsorted(runs[:, 0], offsets, "right") - 1
            is_in = (slots >= 0) & (offsets <= runs[np.maximum(slots, 0), 1])
            found |= is_in & (partitions == partition)
        return pa.array(found)

    def may_be_in(self, file: DataFile, offset_id: int) -> bool:
        """Whether a data file may have a row of an erased record, by the bounds of its offsets. `offset_id`: the field
        id of the column `offset`."""
        bounds = (file.lower_bounds or {}).get(offset_id), (file.upper_bounds or {}).get(offset_id)
        if None in bounds:
            return True
        first, last = (int.from_bytes(each, "little", signed=True) for each in bounds if each is not None)
        return any(bool(((runs[:, 0] <= last) & (runs[:, 1] >= first)).any()) for runs in self.runs.values())

    def reach_past(self, ends: Mapping[int, int]) -> list[int]:
        """The partitions with an erased offset at or past their end in `ends`."""
        return sorted(each for each, runs in self.runs.items() if runs[-1, 1] >= ends.get(each, 0))


def check_follows(table: Table, topic: str, cluster_id: str | None) -> None:
    """Raise `Refused` unless a table follows this topic, in this cluster."""
    known = ledger_of(table)
    name = ".".join(table.name())
    if known is None or known.topic != topic:
        raise Refused(f"table {name} does not follow the topic {topic}")
    if None not in (known.cluster_id, cluster_id) and known.cluster_id != cluster_id:
        raise Refused(f"table {name} is of cluster {known.cluster_id}, and this is {cluster_id}")


def erase_rows(catalog: Catalog, table: Table, offsets: ErasedOffsets, ports: SinkPorts) -> list[ErasureResult]:
    """Erase the rows of erased records from the table of a topic, and from the table of its dead letters. The caller
    has checked the table (`check_follows`). Returns a result for each of the two tables that exists.

    Raises `CommitConflict` if other programs commit again and again, `WriterReplaced` if a follower has begun
    meanwhile, OSError and the errors of the catalog.
    """
    known = ledger_of(table)
    assert known is not None, "the caller has checked what the table follows"
    erased = [TableErasure(catalog, table.name(), offsets, ports).run()]
    with suppress(NoSuchTableError):
        letters = (*table.name()[:-1], table.name()[-1] + SUFFIX)
        catalog.load_table(letters)
        erased.append(TableErasure(catalog, letters, offsets, ports).run())
    erased[0].unread = offsets.reach_past(known.offsets)
    return erased


def rows_left(table: Table, offsets: ErasedOffsets) -> int:
    """The number of rows of erased records in the files of all snapshots of a table. Raises OSError."""
    search = FileSearch(table, offsets)
    return sum(search.count(file) for snapshot in table.snapshots() for file in live_files(table, snapshot))


class FileSearch:
    """Counts the rows of erased records in the files of a table. Each file is read once."""

    def __init__(self, table: Table, offsets: ErasedOffsets) -> None:
        self._table = table
        self._offsets = offsets
        self._offset_id = table.schema().find_field(PLACE[1]).field_id
        columns = schema_to_pyarrow(table.schema(), include_field_ids=True)
        self._places = pa.schema([columns.field(name) for name in PLACE[:2]])
        self._counts: dict[str, int] = {}

    def count(self, file: DataFile) -> int:
        """The number of rows of erased records that a file stores, including rows that another program has marked as
        deleted; 0 if the file does not exist any more."""
        path = file.file_path
        if path not in self._counts:
            may_be = file.content is DataFileContent.DATA and self._offsets.may_be_in(file, self._offset_id)
            self._counts[path] = self._counted(path) if may_be else 0
        return self._counts[path]

    def _counted(self, path: str) -> int:
        try:
            with self._table.io.new_input(path).open() as stream:
                return self._count_in(pq.ParquetFile(stream))
        except FileNotFoundError:
            return 0

    def has_rows(self, fs: FileSystem, path: str) -> bool:
        """Whether a file that no snapshot names stores rows of erased records. A file that was not finished cannot be
        read and counts as empty: a sweep deletes it. Raises OSError."""
        with fs.open_input_file(path) as stream:
            try:
                return self._count_in(pq.ParquetFile(stream)) > 0
            except pa.ArrowInvalid:
                return False

    def _count_in(self, file: pq.ParquetFile) -> int:
        rows = rows_of_file(file, self._places)
        return sum(pc.sum(self._offsets.among(batch)).as_py() or 0 for batch in rows)


class TableErasure:
    """The erasure of the rows of erased records from one table."""

    def __init__(self, catalog: Catalog, name: tuple[str, ...], offsets: ErasedOffsets, ports: SinkPorts) -> None:
        self._catalog = catalog
        self._identifier = name
        self._offsets = offsets
        self._ports = ports
        self._lake_table = LakeTable(catalog, name, ports)
        self._erased = ErasureResult(".".join(name))

    def run(self) -> ErasureResult:
        """Erase the rows, and return the result. Raises what `erase_rows` raises."""
        table = self._loaded()
        if not any(self._named(table, each) for each in table.snapshots()) and not self._strays(table):
            return self._erased  # A follower of the table goes on.
        known = ledger_of(table)
        assert known is not None, "the caller has looked"
        self._lake_table.claim(replace(known, writer=self._lake_table.writer), NewTable(pa.schema([])))
        self._replace_files()
        table = self._loaded()
        current = table.current_snapshot()
        assert current is not None, "the claim has made one"
        if self._named(table, current):
            attempt = self._lake_table.begin()
            attempt.commit(attempt.ledger.offsets)
        self._expire()
        return self._erased

    def _loaded(self) -> Table:
        return self._catalog.load_table(self._identifier)

    def _named(self, table: Table, snapshot: Snapshot) -> set[str]:
        """The paths of the files with rows of erased records that the manifests of a snapshot name, also of files that
        are marked as deleted."""
        search = FileSearch(table, self._offsets)
        return {each.file_path for each in named_files(table, snapshot) if search.count(each)}

    def _strays(self, table: Table) -> list[tuple[FileSystem, str]]:
        """The files with rows of erased records that no snapshot names. An erasure that ended early has left them."""
        search = FileSearch(table, self._offsets)
        return [(fs, path) for fs, path in unneeded_data(table) if search.has_rows(fs, path)]

    def _replace_files(self) -> None:
        attempt = self._lake_table.begin()
        search = FileSearch(attempt.table, self._offsets)
        tasks = [each for each in attempt.table.scan().plan_files() if search.count(each.file)]
        if not tasks:
            return
        gone: dict[int, OffsetDigest] = {}
        try:
            for task in tasks:
                gone = add_digests(gone, self._rewrite(attempt, task))
            self._erased.written = [self._stated(attempt.table, each.file_path) for each in attempt.files.finish()]
        except BaseException:
            attempt.discard()
            raise
        never = {
            each: RecordDigests(OffsetDigest(-digest.number, -digest.hashes & WORD)) for each, digest in gone.items()
        }
        attempt.commit(attempt.ledger.offsets, never if attempt.ledger.mode == "append" else {})
        self._ports.step("rows erased")

    def _rewrite(self, attempt: CommitAttempt, task: FileScanTask) -> dict[int, OffsetDigest]:
        """Add the rows of a file that are not erased to the attempt. Returns the digests of the erased rows, by
        partition."""
        gone: dict[int, OffsetDigest] = {}
        count = 0
        for batch in stored_rows(attempt.table.metadata, attempt.table.io, task, attempt.files.schema):
            is_erased = self._offsets.among(batch)
            rows = batch.filter(is_erased)
            count += len(rows)
            gone = add_digests(gone, digests_by_partition(rows))
            attempt.add(batch.filter(pc.invert(is_erased)))
        attempt.replace(task.file)
        self._erased.rows += count
        self._erased.files.append(self._stated(attempt.table, task.file.file_path) | {"rows_erased": count})
        return gone

    def _stated(self, table: Table, path: str) -> dict[str, Any]:
        crc = 0
        with table.io.new_input(path).open() as stream:
            while chunk := stream.read(CHUNK_SIZE):
                crc = crc32c(chunk, crc)
        return {"file": path, "crc": f"{crc:08x}"}

    def _expire(self) -> None:
        """Expire the snapshots, other than the current one, that name files with erased rows, and delete the files that
        no snapshot names afterwards."""
        table = self._loaded()
        named = {each.snapshot_id: self._named(table, each) for each in table.snapshots()}
        kept: dict[int, list[str]] = {}
        for name, reference in table.metadata.refs.items():
            kept.setdefault(reference.snapshot_id, []).append(name)
        self._erased.kept_by = sorted(name for each, names in kept.items() if named.get(each) for name in names)
        expired = [each for each, files in named.items() if files and each not in kept]
        if expired:
            table.maintenance.expire_snapshots().by_ids(expired).commit()
            self._erased.snapshots_expired = len(expired)
            self._ports.step("snapshots expired")
        self._lake_table.sweep()
        for fs, path in self._strays(self._loaded()):
            fs.delete_file(path)


def named_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """Yield the files that the manifests of a snapshot name, also those that are marked as deleted."""
    for manifest in snapshot.manifests(table.io):
        yield from (each.data_file for each in manifest.fetch_manifest_entry(table.io, discard_deleted=False))


def live_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """Yield the files of a snapshot that are not deleted."""
    for manifest in snapshot.manifests(table.io):
        yield from (each.data_file for each in manifest.fetch_manifest_entry(table.io))
