"""A live table: the rows of a table's snapshot and of the records after it in the topic, as one relation.

    pin    Choose a snapshot of the table, which has the topic up to its `moldau.offsets`, and the ends of the log. The
           records between the two are the tail. A pinned relation never changes: each scan of it has the same rows.
    scan   Of an append table: the files of the snapshot, then the records of the tail. Of a table by key: the files
           without the rows whose keys are in the tail, then the last record of each of these keys.

The rows of the tail are made like the rows of the follower's next commit, so each offset is in the relation once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.exceptions import ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, In, LessThan
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from moldau.lake.columns import PLACE, TIMES_US, Columns, DecodedColumns, RawColumns, have_possible_years
from moldau.lake.data_files import aligned_to_schema
from moldau.lake.keys import NO_KEYS, ChangedKeys
from moldau.lake.ledger import Ledger
from moldau.lake.opening import columns_of, load_table, opened_catalog
from moldau.lake.reading import TopicReading
from moldau.lake.round_rows import SKIP, SUSPEND, Misfits, RoundRows
from moldau.lake.sink import ledger_of
from moldau.lake.stored_rows import in_order
from moldau.lake.table_form import FormChoices
from moldau.lake.upsert import (
    IS_DELETION,
    KeyChanges,
    match_changed_keys,
    rows_and_keys_of,
    rows_that_stay,
    without_older,
)
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.decoding.last_of_keys import CannotSelectByKeys, LastOfKeys, can_select_by_keys, last_of_keys
from moldau.tables.engines.topic_dataset import TopicDataset
from moldau.tables.planning.pushed_filters import ALL_VALUES, PushedFilters
from moldau.tables.reading.arguments import EPOCH, Place, options_of_places
from moldau.tables.reading.scan import NOTHING_PUSHED, Progress, Scan
from moldau.tables.refusals import Refused
from moldau.tables.values.value_types import can_hold

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pandas import DataFrame
    from polars import LazyFrame

    from moldau.tables.origins.port import Slice


class TopicTail:
    """The records of a topic after the offsets that a table has, up to the ends of the log when this
    object was made."""

    def __init__(self, reading: TopicReading, ledger: Ledger, columns: Columns, misfits: str) -> None:
        """Raises `DataLost`, also if retention has deleted records that the table does not have; `TopicRecreated`,
        `ValueNotDecoded`; OSError and `MalformedMessage` of the files."""
        self._reading = reading
        self._misfits = misfits
        self._columns = columns
        self.is_upsert = ledger.mode == "upsert"
        self.ends = reading.ends(ledger.offsets, ledger.topic_id)
        self.slices: tuple[Slice, ...] = tuple(
            each for task in reading.tasks(ledger.offsets, self.ends) for each in task
        )
        self._settled: tuple[pa.Table, ChangedKeys] | None = None
        if isinstance(columns, DecodedColumns):
            for each in self.slices:
                for batch in reading.batches([(each,)], columns.needed_names):
                    columns.meet(batch)
        self.schema = columns.schema

    def row_batches(self, wanted: Slice, column_names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice of the tail, for an append table. They have at least these columns of the table."""
        is_raw = not isinstance(self._columns, DecodedColumns)
        read = [name for name in self._columns.read_names if not is_raw or name in {*column_names, *PLACE}]
        columns = RawColumns(read) if is_raw else self._columns
        making = RoundRows(columns, Misfits(self._reading.topic, self._misfits))
        for batch in self._reading.batches([(wanted,)], read):
            yield making.rows(batch)

    def changes(self, source: PinnedTable, files: Sequence[StoredFile]) -> tuple[pa.Table, ChangedKeys]:
        """Return the last row of each key in the tail, and all keys of the tail. A key that the tail deletes has no
        row. A key is left out if its row in one of the table's `files` is later. The result stays in memory from the
        first call on."""
        if self._settled is None:
            rows, keys = self._rows_and_keys(source.target)
            schema = source.metadata.schema()
            later = [each.planned for each in files if keys.may_be_older(each.planned.file, schema)]
            older = match_changed_keys(source.metadata, source.io, later, source.target, keys).older
            self._settled = without_older(rows, keys, older, source.target)
        return self._settled

    def _rows_and_keys(self, target: pa.Schema) -> tuple[pa.Table, ChangedKeys]:
        """Return the last row of each key, unless the tail deletes it, and all keys. Raises what `changes` raises."""
        if isinstance(self._columns, RawColumns) and self.slices and can_select_by_keys():
            with suppress(CannotSelectByKeys):  # A misfit: all records are read, and the first misfit is found.
                return self._chosen_rows_and_keys(target)
        changes = KeyChanges()
        making = RoundRows(self._columns, Misfits(self._reading.topic, self._misfits))
        for batch in self._reading.batches([self.slices], self._columns.read_names):
            making.collect(changes, batch)
        return changes.rows_and_keys(target)

    def _chosen_rows_and_keys(self, target: pa.Schema) -> tuple[pa.Table, ChangedKeys]:
        """Return what `_rows_and_keys` does, without decoding superseded values. Raises `CannotSelectByKeys` if a
        record is a misfit."""
        last = last_of_keys(self.slices, self._columns.read_names, have_possible_years)
        rows = [self._columns.rows(each) for each in last.rows]
        if last.is_exact and rows:
            batches = [each.batch.append_column(IS_DELETION, each.deletes) for each in rows]
            return rows_and_keys_of(pa.Table.from_batches(batches), lambda: superseded_table(last), target)
        changes = KeyChanges()
        for each in rows:
            changes.add(each.batch, each.deletes)
        for records in last.superseded_records():  # Without values, because another change of each key is later.
            changes.add(records, pa.array(np.zeros(len(records), np.bool_)))
        return changes.rows_and_keys(target)


def superseded_table(last: LastOfKeys) -> pa.Table | None:
    superseded = last.superseded_records()
    return pa.Table.from_batches(superseded) if superseded else None


class StoredFile(NamedTuple):
    """A data file of the table."""

    planned: FileScanTask

    @property
    def size(self) -> int:
        return int(self.planned.file.file_size_in_bytes)


LiveTask: TypeAlias = "tuple[StoredFile] | tuple[Slice] | tuple[pa.Table]"
"""A task of a scan: a file of the table, a slice of the tail, or the rows of the tail by key."""


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A snapshot of a table, with the tail of the topic after it."""

    metadata: TableMetadata
    io: FileIO
    snapshot_id: int | None
    target: pa.Schema
    """The columns of the relation, with Iceberg's field ids."""
    fields: pa.Schema
    """The columns of the relation, as readers get them."""
    tail: TopicTail | None

    def files(self, pushed: PushedFilters) -> Sequence[StoredFile]:
        """The files of the snapshot that may have rows within the bounds `pushed`. Raises OSError."""
        if self.snapshot_id is None:
            return ()
        scan = DataScan(self.metadata, self.io, iceberg_predicate(pushed), snapshot_id=self.snapshot_id)
        return [StoredFile(each) for each in in_order(scan.plan_files(), self.metadata.schema())]


class LiveReader:
    """The reader of a pinned table with its tail: plans the tasks and reads them."""

    def __init__(self, source: PinnedTable, columns: Sequence[str], pushed: PushedFilters) -> None:
        self._source = source
        self._columns = tuple(columns)
        self._pushed = pushed
        self._keys = NO_KEYS

    def tasks(self) -> Sequence[LiveTask]:
        """Return the tasks: the files of the table, then the tail. Raises what `TopicTail.changes` raises."""
        tail, files = self._source.tail, self._source.files(self._pushed)
        tasks = [(each,) for each in files]
        if tail is None:
            return tasks
        if tail.is_upsert:
            is_whole = self._pushed == NOTHING_PUSHED
            rows, self._keys = tail.changes(self._source, files if is_whole else self._source.files(NOTHING_PUSHED))
            return [*tasks, (rows,)]
        return [*tasks, *((each,) for each in tail.slices if may_have_rows(self._pushed, each))]

    def read_task(self, task: LiveTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. Raises OSError; `DataLost`, `MalformedMessage` and `ValueNotDecoded`
        of the tail."""
        fields = pa.schema([field for field in self._source.fields if field.name in self._columns])
        (part,) = task
        if isinstance(part, StoredFile):
            source = self._source
            batches = rows_that_stay(source.metadata, source.io, part.planned, source.target, self._keys, self._columns)
            for batch in batches:
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in fields.names], schema=fields)
            return
        assert self._source.tail is not None
        batches = part.to_batches() if isinstance(part, pa.Table) else self._source.tail.row_batches(part, fields.names)
        for batch in batches:
            yield aligned_to_schema(batch, fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveScan(Scan):
    """A scan of a pinned table and its tail."""

    pinned: PinnedTable

    @property
    def takes_bounds(self) -> bool:
        return True

    def every_field(self) -> pa.Schema:
        return self.pinned.fields

    def planned(self, columns: tuple[str, ...], pushed: PushedFilters | None) -> LiveReader:
        return LiveReader(self.pinned, columns, pushed or NOTHING_PUSHED)


def may_have_rows(pushed: PushedFilters, wanted: Slice) -> bool:
    """Whether a slice may have rows within the bounds `pushed`."""
    start, end = pushed.offsets
    return pushed.accepts_partition(wanted.partition) and wanted.start_offset < end and wanted.end_offset > start


def iceberg_predicate(pushed: PushedFilters) -> BooleanExpression:
    """Convert bounds into an Iceberg predicate, with which a scan leaves out files."""
    found: list[BooleanExpression] = []
    for name, (start, end) in (("partition", pushed.numbers), ("offset", pushed.offsets)):
        if start != ALL_VALUES[0]:
            found.append(GreaterThanOrEqual(name, start))
        if end != ALL_VALUES[1]:
            found.append(LessThan(name, end))
    if pushed.partitions is not None:
        found.append(In("partition", sorted(pushed.partitions)))
    start, end = pushed.times_us
    if TIMES_US[0] < start <= TIMES_US[1]:
        found.append(GreaterThanOrEqual("timestamp", (EPOCH + timedelta(microseconds=start)).isoformat()))
    if TIMES_US[0] < end <= TIMES_US[1]:
        found.append(LessThan("timestamp", (EPOCH + timedelta(microseconds=end)).isoformat()))
    return And(*found) if len(found) > 1 else found[0] if found else AlwaysTrue()


@dataclass(frozen=True, slots=True)
class LiveTableChoices:
    """The arguments of `table`, from which a live table is pinned."""

    name: str
    """The name of a topic, whose table is `default.TOPIC`, or `NAMESPACE.NAME` of a table."""
    warehouse: str | None = None
    catalog: str | None = None
    catalog_properties: Mapping[str, str] | None = None
    live: Place | None = None
    """The places of the topic, as for `moldau.read_topic`; None reads the table alone."""
    registry: str | None = None
    misfits: str = SUSPEND
    options: Mapping[str, str] | None = None
    """Further options of the data source, by name."""

    def pinned(self, sleep: Callable[[float], None] = time.sleep) -> tuple[PinnedTable, Ledger]:
        """Pin the current snapshot of the table, and the log after it. Returns the pinned table and its ledger. Raises
        `Refused`, what `TopicTail` raises, and the errors of the catalog."""
        if self.misfits not in (SUSPEND, SKIP):
            raise Refused(f"misfits: {self.misfits} is neither {SUSPEND} nor {SKIP}")
        table = self._table()
        ledger, name = ledger_of(table), ".".join(table.name())
        if ledger is None:
            raise Refused(f"table {name} was not made by moldau follow-table")
        tail = None if self.live is None else self._tail(self.live, table, ledger, sleep)
        schema = table.schema() if tail is None else grown_schema(table, tail.schema)
        snapshot = table.metadata.current_snapshot()
        snapshot_id = None if snapshot is None else snapshot.snapshot_id
        target, fields = (schema_to_pyarrow(schema, include_field_ids=with_ids) for with_ids in (True, False))
        return PinnedTable(table.metadata, table.io, snapshot_id, target, fields, tail), ledger

    def _table(self) -> Table:
        catalog = opened_catalog(self.warehouse, self.catalog, self.catalog_properties or {})
        try:
            return load_table(catalog, self.name)
        finally:
            catalog.close()

    def _tail(self, live: Place, table: Table, ledger: Ledger, sleep: Callable[[float], None]) -> TopicTail:
        name = ".".join(table.name())
        options = {**(self.options or {}), "kafka.isolation.level": ledger.isolation}
        reading = TopicReading(LocalFiles(), options, ledger.topic, sleep, options_of_places(live))
        ledger.check(replace(ledger, topic_id=None, cluster_id=reading.cluster_id), name)
        has_headers = "headers" in table.schema().column_names
        columns = columns_of(table, FormChoices(self.registry), has_headers=has_headers)
        return TopicTail(reading, ledger, columns, self.misfits)


def grown_schema(table: Table, wanted: pa.Schema) -> Any:
    """The schema of a table with the columns that its tail needs, as the next commit of the follower adds them. Raises
    `Refused` if the table cannot have them."""
    if can_hold(schema_to_pyarrow(table.schema(), include_field_ids=False), wanted):
        return table.schema()
    update = table.transaction().update_schema()
    try:
        update.union_by_name(wanted)
    except (ValueError, ValidationException) as problem:
        raise Refused(f"{'.'.join(table.name())}: the table cannot have the columns: {problem}") from None
    return update._apply()


class LiveTable(TopicDataset):
    """A pinned table with its tail, as a dataset of PyArrow. DuckDB can query it directly."""

    def __init__(self, choices: LiveTableChoices, ledger: Ledger, scan: LiveScan) -> None:
        super().__init__(scan)
        self._choices = choices
        self._live = scan
        pinned = scan.pinned
        self.snapshot_id = pinned.snapshot_id
        """The id of the pinned snapshot; None if the table has no snapshot."""
        self.table_offsets: Mapping[int, int] = dict(ledger.offsets)
        """The end (exclusive) of each partition in the table."""
        self.offsets: Mapping[int, int] = {**ledger.offsets, **(pinned.tail.ends if pinned.tail is not None else {})}
        """The end (exclusive) of each partition in the relation, with the tail."""

    def renewed(self) -> LiveTable:
        """Return a new relation, pinned now. Raises what `table` raises."""
        pinned, ledger = self._choices.pinned()
        return LiveTable(self._choices, ledger, replace(self._live, pinned=pinned, columns=tuple(pinned.target.names)))

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of all rows as Arrow batches, which may be read once."""
        return self._scan.reader()

    def polars(self) -> LazyFrame:
        """The relation as a lazy frame of Polars."""
        from moldau.tables.engines.polars_scan import lazy_frame

        return lazy_frame(self._scan)

    def pandas(self) -> DataFrame:
        """Read all rows into a data frame of pandas with Arrow columns."""
        from moldau.tables.engines.pandas_frame import arrow_frame

        return arrow_frame(self._scan.reader())

    def duckdb(self, con: DuckDBPyConnection | None = None, name: str | None = None) -> DuckDBPyConnection:
        """Register the relation as a view of a DuckDB connection. If `con` is None, make a connection in memory. The
        view has the given name, or else that of the topic or table. Returns the connection."""
        import duckdb as library

        connection: DuckDBPyConnection = library.connect() if con is None else con
        connection.register(name or self._choices.name, self)
        return connection


def table(
    warehouse: str | Path | None,
    name: str,
    *,
    live: Place | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    registry: str | None = None,
    misfits: str = SUSPEND,
    filter: pc.Expression | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    options: Mapping[str, str] | None = None,
) -> LiveTable:
    """Open the Iceberg table of a topic, and with `live` the records of the topic after it, as one relation: each row
    once.

    | argument                        | meaning                                                                        |
    |---------------------------------|--------------------------------------------------------------------------------|
    | `warehouse`, `name`             | the directory of `moldau follow-table`, and the topic or NAMESPACE.NAME        |
    | `catalog`, `catalog_properties` | a catalog of pyiceberg, in place of a warehouse, which is None then            |
    | `live`                          | the places of the topic, as in `moldau.read_topic`; None reads the table alone |
    | `registry`                      | the schemas, if the table was begun with them                                  |
    | `misfits`                       | a record of the tail that does not fit ends the read (suspend), or is left out |
    |                                 | (skip), as `follow-table` does with skip and dead-letter                       |
    | `filter`, `threads`, `progress`, `options` | as in `moldau.read_topic`                                           |

    The relation is pinned when this returns: each scan of it has the same rows, whatever is committed meanwhile.
    `renewed()` returns a newer one. The relation ends at the last record that the places show: a broker (host:port)
    shows what is committed, the files of a broker may lag behind by five seconds.

    In a table by key the last record of a key in the tail replaces or deletes the row of the key. The changed rows of
    the tail are kept in memory. Raises `Refused`, `DataLost`, `TopicRecreated`, `ValueNotDecoded`, `MalformedMessage`,
    OSError and the errors of the catalog.
    """
    if (warehouse is None) == (catalog is None):
        raise Refused("give a warehouse, or a catalog and None for the warehouse")
    place = None if warehouse is None else str(warehouse)
    choices = LiveTableChoices(name, place, catalog, catalog_properties, live, registry, misfits, options)
    pinned, ledger = choices.pinned()
    scan = LiveScan(tuple(pinned.target.names), filter, threads=threads, progress=progress, pinned=pinned)
    return LiveTable(choices, ledger, scan)
