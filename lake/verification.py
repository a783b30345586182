"""`moldau lake verify`: checks that each offset is once in a table, among its dead letters, or among its misfits.

| what is compared | with | finds |
|---|---|---|
| the rows of a data file | the runs in its metadata, the number in the manifest | rows that were changed in place |
| all rows and dead letters | each other, and the ends of the table | an offset twice, or too early |
| the rows of an append table | the digests of its ledger | a row too few, too many, or another one |
| the rows of a table | their number in the last snapshot of the follower | a row too few or too many |
| the rows of a table by key | each other | a key that has several |
| both | the records of the log, if its places are given and still have them | which offset it is |

Each row takes twelve bytes of memory; for a table by key its key is in memory, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table

from moldau.lake.columns import PLACE
from moldau.lake.dead_letters import SUFFIX
from moldau.lake.forms import BINARY, CONNECT, JSON, REGISTRY
from moldau.lake.keys import KEY, key_identities, key_names
from moldau.lake.ledger import OFFSETS, Ledger, RecordDigests
from moldau.lake.offset_runs import RUNS, OffsetRuns, offset_digest
from moldau.lake.reading import TopicReading
from moldau.lake.sink import ledger_of
from moldau.lake.stored_rows import in_order, rows_of_file, undeleted_filter
from moldau.lake.table_form import TableForm, form_of
from moldau.lake.upsert import IS_DELETION, KeyChanges
from moldau.tables.refusals import Refused

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOWN_MAX: Final = 10
"""The most offsets that the text of a finding names."""
OF_SEVERAL_BYTES: Final = (REGISTRY, CONNECT, JSON)
"""The forms in which different bytes may decode to the same key. A verification does not decode keys."""
TOTAL: Final = "total-records"
"""The property with the number of the table's rows, in the summary of a snapshot."""
Place: TypeAlias = "tuple[Any, ...]"
"""The partition and the offset of a row, and its key if the table stores keys as they are in the log."""


@dataclass(slots=True)
class VerificationResult:
    rows_count: int = 0
    letters_count: int = 0
    misfits_count: int = 0
    """The number of records that did not fit, including the dead letters."""
    files_count: int = 0
    foreign_count: int = 0
    """The number of files without runs: those of other programs, or of an earlier version."""
    records_count: int | None = None
    """The number of records in the log; None if its places were not given."""
    undecided_count: int = 0
    """The number of keys without a row that may need none: a record in another partition may have deleted the row, and
    the log does not have that record any more. This is possible only if the topic was given more partitions."""
    is_counted: bool = True
    """Whether the ledger states the records that were read. The ledger of a table that an earlier version began does
    not."""
    findings: list[str] = field(default_factory=list)


class Rows:
    """The offsets of the rows of a table, by partition."""

    def __init__(self) -> None:
        self._parts: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
        self.count = 0

    def add(self, partitions: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        self.count += len(offsets)
        for each in np.unique(partitions):
            self._parts[int(each)].append(offsets[partitions == each])

    def partitions(self) -> set[int]:
        return set(self._parts)

    def offsets(self, partition: int) -> NDArray[np.int64]:
        parts = self._parts.get(partition, [])
        return np.concatenate(parts) if parts else np.array([], np.int64)


class Verification:
    """One verification of a table and of its dead letters."""

    def __init__(self, catalog: Catalog, table: Table, progress: Callable[[str], None] = lambda _: None) -> None:
        """`progress`: called with a message after each file. Raises `Refused` for a table that does not
        follow a topic."""
        ledger = ledger_of(table)
        self.name = ".".join(table.name())
        if ledger is None:
            raise Refused(f"table {self.name} was not made by moldau follow-table")
        self.ledger: Ledger = ledger
        self._table = table
        self._form = form_of(table.metadata.properties, schema_to_pyarrow(table.schema(), include_field_ids=False))
        self._progress = progress
        try:
            namespace, last = table.name()[:-1], table.name()[-1]
            self._letters: Table | None = catalog.load_table((*namespace, last + SUFFIX))
        except NoSuchTableError:
            self._letters = None
        self._keys: list[pa.Table] = []
        self.found = VerificationResult(is_counted=ledger.taken is not None)

    def run(self, reading: TopicReading | None = None) -> VerificationResult:
        """Verify the table. With `reading`, its rows are also compared with the log. Raises OSError, and what a read of
        the log raises."""
        rows, letters = self._rows_of(self._table, self.name), Rows()
        if self._letters is not None:
            letters = self._rows_of(self._letters, ".".join(self._letters.name()))
        self.found.rows_count, self.found.letters_count = rows.count, letters.count
        for partition in sorted(rows.partitions() | letters.partitions() | set(self.ledger.taken or ())):
            self._compare_offsets(partition, rows.offsets(partition), letters.offsets(partition))
        if self._keys:
            self._compare_keys()
        if reading is not None:
            self._compare_log(reading, rows, letters)
        return self.found

    def _rows_of(self, table: Table, name: str) -> Rows:
        """Read the offsets of all rows of a table. Each file is compared with its runs, and the number of rows with
        that of the last commit."""
        rows = Rows()
        with_keys = table is self._table and self.ledger.mode == "upsert"
        columns = schema_to_pyarrow(table.schema(), include_field_ids=True)
        names = (*PLACE[:2], *key_names(columns.names)) if with_keys else PLACE[:2]
        target = pa.schema([columns.field(name) for name in names])
        for task in in_order(table.scan().plan_files(), table.schema()):
            self.found.files_count += 1
            for batch in self._compared(table, task, target):
                rows.add(np.asarray(batch.column("partition")), np.asarray(batch.column("offset")))
                if with_keys:
                    self._keys.append(pa.Table.from_batches([batch.select(list(names))]))
            self._progress(f"{name}: {self.found.files_count:,} files, {rows.count:,} rows")
        total = total_of_ledger(table)
        if total is not None and total != rows.count:
            self._say(f"{name}: {rows.count:,} rows, and the last commit of the follower left {total:,}")
        return rows

    def _compared(self, table: Table, task: FileScanTask, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Compare the runs of a file with all rows that it stores, and then yield the rows that are not deleted. The
        file is read once."""
        path = task.file.file_path
        where = f"{'.'.join(table.name())}: {path.rpartition('/')[2]}"
        with table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            stored = list(rows_of_file(file, target))
        count, written = file.metadata.num_rows, (file.metadata.metadata or {}).get(RUNS.encode())
        if count != task.file.record_count:
            self._say(f"{where}: the manifest has {task.file.record_count:,} rows, the file {count:,}")
        if written is None:
            self.found.foreign_count += 1
        else:
            self._compare_runs(written, stored, where)
        is_left = undeleted_filter(table.metadata, table.io, task)
        yield from stored if is_left is None else (batch.filter(is_left(batch)) for batch in stored)

    def _compare_runs(self, written: bytes, stored: Sequence[pa.RecordBatch], where: str) -> None:
        try:
            runs = OffsetRuns.of_json(written)
        except (ValueError, KeyError, TypeError) as problem:
            self._say(f"{where}: its runs cannot be parsed: {problem}")
            return
        nothing = np.array([], np.int32)
        places = [np.concatenate([nothing, *(np.asarray(rows.column(name)) for rows in stored)]) for name in PLACE[:2]]
        for fault in runs.faults(*places):
            self._say(f"{where}: {fault}")

    def _compare_offsets(self, partition: int, rows: NDArray[np.int64], letters: NDArray[np.int64]) -> None:
        end = self.ledger.offsets.get(partition, 0)
        where = f"{self.name}: partition {partition}"
        self._name(
            f"{where}, dead letters", "past the end of their table", letters[letters >= self._letters_end(partition)]
        )
        letters = letters[letters < end]  # Those of a round that was not committed are ahead.
        both, counts = np.unique(np.r_[rows, letters], return_counts=True)
        self._name(where, "more than once in the table and its dead letters", both[counts > 1])
        self._name(where, f"past the end of the table, {end}", rows[rows >= end])
        taken = RecordDigests() if self.ledger.taken is None else self.ledger.taken.get(partition, RecordDigests())
        self.found.misfits_count += taken.misfits.number
        if self.ledger.taken is None:
            return
        if self.ledger.mode == "append":
            have = offset_digest(rows).plus(taken.misfits)
            if have != taken.records:
                self._say(f"{where}: {difference_text(len(rows), taken)}")
        have_letters = offset_digest(letters)
        if have_letters.number > taken.misfits.number:
            self._say(
                f"{where}: {have_letters.number:,} dead letters, and {taken.misfits.number:,} records did not fit"
            )
        elif have_letters.number == taken.misfits.number and have_letters != taken.misfits:
            self._say(f"{where}: the dead letters have other offsets than the records that did not fit")

    def _letters_end(self, partition: int) -> int:
        ledger = None if self._letters is None else ledger_of(self._letters)
        return 0 if ledger is None else ledger.offsets.get(partition, 0)

    def _compare_keys(self) -> None:
        counted = pc.value_counts(key_identities(pa.concat_tables(self._keys)))
        twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
        if len(twice):
            named = ", ".join(map(repr, twice[:SHOWN_MAX].to_pylist()))
            self._say(f"{self.name}: {len(twice):,} keys have several rows: {named}")

    def _compare_log(self, reading: TopicReading, rows: Rows, letters: Rows) -> None:
        ends = reading.ends(self.ledger.offsets, self.ledger.topic_id)
        starts = {each: reading.log_start(each) for each in ends}
        until = {each: self.ledger.offsets.get(each, starts[each]) for each in ends}
        if self.ledger.mode == "upsert":
            self._compare_log_by_key(reading, starts, until)
            return
        found = Rows()
        for batch in reading.batches(reading.tasks(starts, until), list(PLACE[:2])):
            found.add(np.asarray(batch.column("partition")), np.asarray(batch.column("offset")))
        self.found.records_count = found.count
        for partition in sorted(ends):
            where = f"{self.name}: partition {partition}"
            table, log = rows.offsets(partition), found.offsets(partition)
            known = np.r_[table, letters.offsets(partition)]
            missing = np.setdiff1d(log, known)
            skipped = (self.ledger.taken or {}).get(partition, RecordDigests()).misfits.number - len(
                letters.offsets(partition)
            )
            if len(missing) > max(0, skipped):
                self._name(where, "in the log, and neither in the table nor a misfit", missing)
            self._name(where, "in the table, and not in the log", np.setdiff1d(table[table >= starts[partition]], log))

    def _compare_log_by_key(self, reading: TopicReading, starts: Mapping[int, int], until: Mapping[int, int]) -> None:
        """Compare the rows of a table by key with the log, in which the last record of each key must be the row of the
        key."""
        changes, read = KeyChanges(), Rows()
        for batch in reading.batches(reading.tasks(starts, until), [KEY, *PLACE, "value"]):
            read.add(np.asarray(batch.column("partition")), np.asarray(batch.column("offset")))
            batch = batch.filter(pc.is_valid(batch.column(KEY)))
            is_deletion = batch.column("value").is_null()
            changes.add(batch.select([KEY, *PLACE]), is_deletion)
        self.found.records_count = read.count
        log = LastRecords.of(changes.last_in_partitions(), self._form)
        table = set() if not self._keys else set(_places(pa.concat_tables(self._keys), self._form))
        old = {each for each in table if each[1] < starts.get(each[0], 0)}
        missing: set[Place] = set()
        if self._form.envelope is None and self._form.key not in OF_SEVERAL_BYTES:
            # Else which of them are deletes, or of the key of another row, is said by the values or keys.
            missing, undecided = log.missing(table, old, {each for each in starts if not self._has_all(each, read)})
            self.found.undecided_count = len(undecided)
        misfits = sum(each.misfits.number for each in (self.ledger.taken or {}).values())
        for text, offsets in (
            ("the last of their key in the log, and not in the table", missing),
            ("in the table, and not the last of their key in the log", table - old - log.places),
        ):
            if len(offsets) > misfits:  # A misfit is not the last record of its key.
                shown = ", ".join(f"{partition}:{offset}" for partition, offset, *_ in sorted(offsets)[:SHOWN_MAX])
                self._say(f"{self.name}: {len(offsets):,} offsets are {text}: {shown}")

    def _has_all(self, partition: int, read: Rows) -> bool:
        """Whether the log still has all records of a partition that were read for the table."""
        taken = None if self.ledger.taken is None else self.ledger.taken.get(partition, RecordDigests())
        return taken is not None and offset_digest(read.offsets(partition)) == taken.records

    def _name(self, where: str, text: str, offsets: NDArray[np.int64]) -> None:
        if len(offsets):
            shown = ", ".join(map(str, np.sort(offsets)[:SHOWN_MAX].tolist()))
            more = " …" if len(offsets) > SHOWN_MAX else ""
            self._say(f"{where}: {len(offsets):,} offsets are {text}: {shown}{more}")

    def _say(self, finding: str) -> None:
        self.found.findings.append(finding)


def total_of_ledger(table: Table) -> int | None:
    """The number of rows in the newest snapshot that has a ledger, by its summary; None if the summary does not state
    it."""
    found = table.metadata.current_snapshot()
    while found is not None:
        summary = {} if found.summary is None else found.summary.additional_properties
        if OFFSETS in summary:
            return None if TOTAL not in summary else int(summary[TOTAL])
        parent = found.parent_snapshot_id
        found = None if parent is None else table.metadata.snapshot_by_id(parent)
    return None


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The last records of each key in each partition of the log.

    If all records of a key are in one partition, the last of them is the row of the key, or there is no row if it is a
    deletion. A key may be in several partitions, because the topic was given more of them. Which of its last records
    became the row then depends on the rounds in which they were read, because a round does not know what earlier rounds
    replaced or deleted. So each of them may be the row, and if one of them is a deletion there may be no row.
    """

    of_one: frozenset[Place]
    """The records of the keys in one partition, without deletions."""
    of_several: Sequence[Sequence[Place | None]]
    """For each key in several partitions its records, the latest first; None for a deletion."""

    @classmethod
    def of(cls, rows: pa.Table, form: TableForm) -> LastRecords:
        """`rows`: the last change of each key in each partition, with the column `IS_DELETION`."""
        if not rows.num_rows:
            return cls(frozenset(), ())
        numbers = np.asarray(key_identities(rows).dictionary_encode().indices)
        is_alone = (np.bincount(numbers) == 1)[numbers]
        of_one = rows.filter(pa.array(is_alone)).filter(~pc.field(IS_DELETION))
        moved = rows.append_column("number", pa.array(numbers)).filter(pa.array(~is_alone))
        moved = moved.sort_by([(name, "descending") for name in ("number", "timestamp", "partition")])
        places = [
            None if is_deletion else place
            for place, is_deletion in zip(_places(moved, form), moved[IS_DELETION].to_pylist(), strict=True)
        ]
        by_key = groupby(zip(moved["number"].to_pylist(), places, strict=True), key=itemgetter(0))
        return cls(frozenset(_places(of_one, form)), [[place for _, place in of_key] for _, of_key in by_key])

    @property
    def places(self) -> set[Place]:
        """The places that a row may have."""
        return {*self.of_one, *(place for of_key in self.of_several for place in of_key if place is not None)}

    def missing(self, table: Set[Place], old: Set[Place], shortened: Set[int]) -> tuple[set[Place], set[Place]]:
        """Return the last records of keys without a row in `table`, in two groups: of keys that must have a row, and of
        keys for which that is unknown. It is unknown if a record in another partition may have deleted the row, and the
        log may no longer have this record. `old`: the rows of the table before the start of the log. `shortened`: the
        partitions without some of the records that were read for the table.
        """
        with_old_row = {key for _, _, *keys in old for key in keys}
        found = {each: {each[0]} for each in self.of_one.difference(table) if with_old_row.isdisjoint(each[2:])}
        for of_key in self.of_several:
            rows = [place for place in of_key if place is not None and with_old_row.isdisjoint(place[2:])]
            if len(rows) == len(of_key) and table.isdisjoint(rows):
                found[rows[0]] = {partition for partition, *_ in rows}
        if not self.of_several:
            return set(found), set()  # Keys do not move in this topic.
        undecided = {place for place, partitions in found.items() if not shortened <= partitions}
        return found.keys() - undecided, undecided


def _places(rows: pa.Table, form: TableForm) -> list[Place]:
    """The partition and the offset of each row, and its key if the table stores keys as they are in the log."""
    names = (*PLACE[:2], KEY) if form.key == BINARY else PLACE[:2]
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def difference_text(count: int, taken: RecordDigests) -> str:
    """A sentence on how `count` rows differ from the records that were read."""
    wanted = taken.records.number - taken.misfits.number
    said = f"{taken.records.number:,} records were taken, of which {taken.misfits.number:,} did not fit"
    if count == wanted:
        return f"{said}; the table has {count:,} rows, some of them with other offsets"
    return f"{said}; the table has {count:,} rows in place of {wanted:,}"
