"""A table in a catalog that one process keeps up to date: it claims the table, and commits rows together with their
offsets.

    claim     Commit an empty snapshot with the id of the writer. A pending commit of an earlier writer is based on the
              snapshot before this one, so the catalog refuses it (assert-ref-snapshot-id).
    sweep     List the files of attempts that did not become part of the table, commit another empty snapshot, then
              delete these files (`orphans.py`).
    attempt   Write data files, then make one commit with the rows, the offsets, the tag of the ledger, and the new
              schema if it has grown.
    crash     Before the commit the table has neither the rows nor the offsets, after it both.

If another program commits between two commits of the writer (a compaction, an expiry of snapshots), the writer's next
commit fails with `CommitConflict`. The attempt is then repeated on the current state of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots, _OverwriteFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT

from moldau.lake.columns import Columns
from moldau.lake.data_files import FILE_SIZE_MAX, AttemptFiles, Step
from moldau.lake.layout import TIME_COLUMN, UNITS, ChosenLayout
from moldau.lake.ledger import NOTHING_TAKEN, PREFIX, TAG, Ledger, RecordDigests, ledger_in
from moldau.lake.orphans import (
    ATTEMPT_RANDOM_SIZE,
    FoundFile,
    attempt_id,
    has_files_of_attempts,
    listed_files,
    unneeded,
)
from moldau.tables.refusals import Refused
from moldau.tables.values.value_types import can_hold

OWNED: Final = "moldau.topic"
"""The property that marks a table that this program has made. Its value is the topic."""
FORM: Final = "moldau.form"
"""The property of a table with its form (`table_form.py`)."""
SAMPLE: Final = "moldau.json-schema."
"""The prefix of the properties with the JSON Schemas of the keys and of the values."""
SNAPSHOT_AGE_MS: Final = 5 * 24 * 3600 * 1000
"""The age (ms) at which a snapshot expires once a newer one exists, unless the table's property `MAX_AGE` sets another
age."""
MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_KEPT: Final = "history.expire.min-snapshots-to-keep"
"""The property of a table with the number of its newest snapshots that are kept whatever their age."""
SNAPSHOTS_MAX: Final = 1_000
"""The most snapshots that are kept unless `MIN_KEPT` asks for more, because each commit writes the list of them
anew."""
PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""The properties of a new table. With a commit a minute, a table without them would have half a million files of
metadata in a year."""
CLAIMS_MAX: Final = 10
"""The most times that a claim, or the commit of a sweep, is tried if other programs commit meanwhile."""
LOCATION_RANDOM_SIZE: Final = 4
"""The random bytes that are added to the name of a new table's directory, if the directory with the table's own name
has the files of another table."""
RETRIES: Final = "commit.retry.num-retries"


class CommitConflict(Refused):
    """Another program has committed to the table meanwhile, so nothing of the attempt is in the table."""


class WriterReplaced(Refused):
    """Another process has claimed the table, and follows the topic from now on."""


@dataclass(frozen=True, slots=True)
class SinkPorts:
    """The functions of the process that `LakeTable` calls: random bytes, the clock, and the report of steps."""

    random: Callable[[int], bytes]
    """A function that returns this number of random bytes."""
    now_ms: Callable[[], int]
    step: Step = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class NewTable:
    """The schema, the partitioning and the properties of a table that is created."""

    schema: pa.Schema
    unit: str | None = None
    """The unit of time by which the table is partitioned; None if it is not partitioned by time."""
    properties: Mapping[str, str] = field(default_factory=dict)


class LakeTable:
    """A table in a catalog of which a process is or becomes the writer."""

    def __init__(
        self, catalog: Catalog, identifier: tuple[str, ...], ports: SinkPorts, file_size_max: int = FILE_SIZE_MAX
    ) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._ports = ports
        self._file_size_max = file_size_max
        self.name = ".".join(identifier)
        self.writer = str(attempt_id(ports.random(ATTEMPT_RANDOM_SIZE)))
        self.full_files: set[str] = set()
        """The paths of small files that a compaction could not join (`compaction.py`)."""

    def claim(self, wanted: Ledger, new: NewTable) -> Ledger:
        """Create the table if it does not exist, and become its writer. Returns the ledger of the table.

        `wanted` has the offsets at which a new table begins. Raises `Refused` and what `Ledger.check` raises if the
        table cannot be continued, `CommitConflict` if other programs commit again and again, and the errors of the
        catalog.
        """
        for _ in range(CLAIMS_MAX - 1):
            with suppress(CommitConflict):
                return self._claim(wanted, new)
        return self._claim(wanted, new)

    def _claim(self, wanted: Ledger, new: NewTable) -> Ledger:
        table = self._loaded() or self._created(wanted, new)
        known = self._known(table, wanted)
        claimed = replace(
            known,
            writer=self.writer,
            topic_id=known.topic_id or wanted.topic_id,
            cluster_id=known.cluster_id or wanted.cluster_id,
        )
        claiming = CommitAttempt(table, claimed, self._ports, self._file_size_max)
        claiming.commit(claimed.offsets)
        self._ports.step("claimed")
        return claimed

    def check(self, wanted: Ledger) -> Table | None:
        """Raise what `claim` raises if the table cannot be continued, without changing the table. Returns the table;
        None if it does not exist."""
        table = self._loaded()
        if table is not None:
            self._known(table, wanted)
        return table

    def _known(self, table: Table, wanted: Ledger) -> Ledger:
        """The ledger of a table; `wanted` if the table has no snapshot yet. Raises `Refused` if the table has rows that
        are not of a topic, and what `Ledger.check` raises."""
        known = ledger_of(table)
        if known is None:
            if table.current_snapshot() is not None:
                raise Refused(f"table {self.name} has rows that are not of a topic: name a table that is not there")
            known = wanted
        known.check(wanted, self.name)
        return known

    def sweep(self) -> list[str]:
        """Delete the orphans of the claimed table. Returns their paths. Raises `WriterReplaced` and OSError."""
        table = self._catalog.load_table(self._identifier)
        found = listed_files(table, owns_metadata=OWNED in table.metadata.properties)
        swept = self._delete_orphans(found) if unneeded(table, found) else []
        self._ports.step("swept")
        return swept

    def _delete_orphans(self, found: Sequence[FoundFile]) -> list[str]:
        """Delete the orphans among files that were listed, after a commit: from then on the catalog refuses each
        attempt that has written one of them, also that of a process which is claiming the table. Returns the paths of
        the files that were deleted; none if other programs commit again and again, so that a later sweep deletes
        them."""
        if not self._commit_empty():
            return []
        orphans = unneeded(self._catalog.load_table(self._identifier), found)
        for fs, path in reversed(
            orphans
        ):  # Data files last: an erasure that ends early is continued while they are there.
            with suppress(FileNotFoundError):
                fs.delete_file(path)
        return [path for _, path in orphans]

    def _commit_empty(self) -> bool:
        """Commit an empty snapshot. Returns whether that succeeded. Raises `WriterReplaced`."""
        for _ in range(CLAIMS_MAX):
            attempt = self.begin()
            with suppress(CommitConflict):
                attempt.commit(attempt.ledger.offsets)
                return True
        return False

    def begin(self) -> CommitAttempt:
        """Begin an attempt to write to the table as it is now. Raises `WriterReplaced` if another process has claimed
        the table."""
        table = self._catalog.load_table(self._identifier)
        known = ledger_of(table)
        if known is None or known.writer != self.writer:
            raise WriterReplaced(
                f"table {self.name} was claimed by another process, which follows the topic from now on"
            )
        return CommitAttempt(table, known, self._ports, self._file_size_max)

    @property
    def metadata_location(self) -> str:
        """The location of the current version of the table's metadata."""
        location: str = self._catalog.load_table(self._identifier).metadata_location
        return location

    def _loaded(self) -> Table | None:
        try:
            return self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return None

    def _created(self, wanted: Ledger, new: NewTable) -> Table:
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        properties = {**PROPERTIES, **new.properties, OWNED: wanted.topic}
        try:
            making = self._catalog.create_table_transaction(self._identifier, new.schema, properties=properties)
            if has_files_of_attempts(making._table):
                # A table that was renamed, or registered again, has its files here: orphans of this one.
                location = f"{making.table_metadata.location}-{self._ports.random(LOCATION_RANDOM_SIZE).hex()}"
                making = self._catalog.create_table_transaction(
                    self._identifier, new.schema, location=location, properties=properties
                )
            if new.unit is not None:
                with making.update_spec() as spec:
                    spec.add_field(TIME_COLUMN, UNITS[new.unit](), f"{TIME_COLUMN}_{new.unit}")
            for path, name in ChosenLayout.of(properties).new_fields(new.schema, making.table_metadata.spec()):
                with making.update_spec() as spec:
                    spec.add_field(path, IdentityTransform(), name)
            made = making.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException) as problem:
            raise CommitConflict(f"{self.name}: another program has made it meanwhile: {problem}") from None
        self._ports.step("table made")
        return made


def ledger_of(table: Table) -> Ledger | None:
    """Return the ledger of a table; None if the table was never followed. Raises `Refused` if the snapshot with the
    ledger was removed."""
    metadata = table.metadata
    oldest = snapshot = metadata.current_snapshot()
    while snapshot is not None:
        found = _ledger_in(snapshot, table)
        if found is not None:
            return found
        oldest, parent = snapshot, snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    reference = metadata.refs.get(TAG)
    tagged = None if reference is None else metadata.snapshot_by_id(reference.snapshot_id)
    # The tagged snapshot counts if it was expired from the branch, and not if the branch was rolled back past it.
    if oldest is not None and tagged is not None and tagged.sequence_number < oldest.sequence_number:
        return _ledger_in(tagged, table)
    if oldest is not None and OWNED in metadata.properties:
        raise Refused(
            f"table {'.'.join(table.name())}: the snapshot with the properties {PREFIX}* was expired, so the offsets "
            "that the table has are not known"
        )
    return None


def _ledger_in(snapshot: Snapshot, table: Table) -> Ledger | None:
    summary = None if snapshot.summary is None else snapshot.summary.additional_properties
    return ledger_in(summary, f"snapshot {snapshot.snapshot_id} of {'.'.join(table.name())}")


class RewriteFiles(_OverwriteFiles):  # type: ignore[misc]
    """A snapshot with the same rows in other files. Iceberg's operation for this is `replace`, which readers of changes
    skip; pyiceberg has no class that writes it."""

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return super()._summary(snapshot_properties).model_copy(update={"operation": Operation.REPLACE})


class ConfirmingCatalog:
    """The catalog of an attempt, which checks whether a refused commit was made after all. A proxy that lost the
    response of the catalog sends the commit again. The catalog refuses the second one, because the first one has
    changed the table. pyiceberg deletes the manifests of a refused commit
    (findings/pyiceberg_refused_commit_that_was_done.sh), so this class checks the table before."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit. Raises `CommitFailedException` if the table does not have the commit, and the errors of the catalog,
        after which the outcome is unknown."""
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException:
            current = self._catalog.load_table(table.name())
            added = {each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)}
            if not added or not added <= {each.snapshot_id for each in current.metadata.snapshots}:
                raise
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)


class CommitAttempt:
    """An attempt to write rows to a table and to commit them."""

    def __init__(self, table: Table, ledger: Ledger, ports: SinkPorts, file_size_max: int) -> None:
        # A commit that a conflict makes anew would not be this attempt any more: pyiceberg is to try once.
        table.metadata = table.metadata.model_copy(update={"properties": {**table.metadata.properties, RETRIES: "0"}})
        table.catalog = ConfirmingCatalog(table.catalog)
        self.table = table
        self.ledger = ledger
        self._ports = ports
        self._uuid = attempt_id(ports.random(ATTEMPT_RANDOM_SIZE))
        self._transaction = table.transaction()
        self._replaced: list[DataFile] = []
        self.files = AttemptFiles(self._transaction, str(self._uuid), ports.step, file_size_max)

    @property
    def metadata(self) -> TableMetadata:
        """The metadata of the table, with the changes of the attempt so far."""
        return self._transaction.table_metadata

    def has(self, columns: pa.Schema) -> bool:
        """Whether the table has these columns, with types that can hold their values. Some may be missing: a round that
        was given up has widened the columns, or another program has renamed or dropped one."""
        return can_hold(schema_to_pyarrow(self.metadata.schema(), include_field_ids=False), columns)

    def evolve(self, columns: Columns) -> None:
        """Add columns to the table, or widen their types, as a part of the commit. Raises `Refused` if the table cannot
        have them."""
        try:
            with self._transaction.update_schema() as update:
                update.union_by_name(columns.schema)
        except (ValueError, ValidationException) as problem:
            raise Refused(f"{'.'.join(self.table.name())}: the table cannot have the columns: {problem}") from None
        samples = {f"{SAMPLE}{name}": json.dumps(schema) for name, schema in columns.samples.items()}
        if not samples.items() <= self.table.metadata.properties.items():
            self._transaction.set_properties(samples)
        self._partition(columns.schema)
        self.files.renew_schema()

    def _partition(self, schema: pa.Schema) -> None:
        """Add those chosen partition fields that the schema has now to the partition spec."""
        metadata = self._transaction.table_metadata
        new = ChosenLayout.of(metadata.properties).new_fields(schema, metadata.spec())
        if new:
            self.files.close()  # Files are described by the spec under which they were written.
            with self._transaction.update_spec() as spec:
                for path, name in new:
                    spec.add_field(path, IdentityTransform(), name)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows to the attempt. Raises OSError."""
        self.files.add(rows)

    def replace(self, file: DataFile) -> None:
        """Remove a file of the table from the next snapshot."""
        self._replaced.append(file)

    def commit(
        self,
        offsets: Mapping[int, int],
        taken: Mapping[int, RecordDigests] = NOTHING_TAKEN,
        *,
        changes_rows: bool = True,
    ) -> Ledger:
        """Commit the rows of the attempt. The table then has the topic up to `offsets`. Returns the new ledger.
        `taken`: the records that were read for the commit. `changes_rows`: False if the removed files have the same
        rows as the new ones.

        Raises `CommitConflict`, and OSError if a file cannot be written; the files of the attempt are deleted then.
        After an error of the catalog the outcome is unknown; the files stay, and the next claim deletes them if they
        are orphans.
        """
        reached = self.ledger.reaching(offsets, taken)
        try:
            snapshot_id = self._written(reached, changes_rows=changes_rows)
        except (FileNotFoundError, ValidationException) as problem:
            # The process that has claimed the table meanwhile has deleted a file, or a program has replaced one.
            raise self._conflict(problem) from None
        except OSError:
            self.files.discard()
            raise
        try:
            ManageSnapshots(self._transaction).create_tag(snapshot_id, TAG).commit()
            self._expire()
            self._transaction.commit_transaction()
        except (CommitFailedException, ValidationException) as problem:
            raise self._conflict(problem) from None
        self._ports.step("committed")
        return reached

    def _written(self, reached: Ledger, *, changes_rows: bool) -> int:
        """Write the data files and the manifests of the snapshot. Returns the snapshot id."""
        files = self.files.finish()
        self._ports.step("files written")
        properties = reached.properties(str(self._uuid))
        made = self._transaction.update_snapshot(snapshot_properties=properties)
        if not changes_rows:
            producer = RewriteFiles(Operation.OVERWRITE, self._transaction, self.table.io, None, properties)
        else:
            producer = made.overwrite() if self._replaced else made.merge_append()
        producer.commit_uuid = self._uuid
        for file in self._replaced:
            producer.delete_data_file(file)
        for file in files:
            producer.append_data_file(file)
        producer.commit()
        self._ports.step("manifests written")
        return int(producer.snapshot_id)

    def _conflict(self, problem: Exception) -> CommitConflict:
        self.files.discard()
        return CommitConflict(f"{'.'.join(self.table.name())}: {problem}")

    def discard(self) -> None:
        """Give up the attempt, and delete its files."""
        self.files.discard()

    def _expire(self) -> None:
        """Expire old snapshots, as part of the commit. The next sweep deletes the files that only they have named."""
        metadata = self._transaction.table_metadata
        named = {each.snapshot_id for each in metadata.refs.values()}
        oldest_ms = self._ports.now_ms() - self._number_of(MAX_AGE, SNAPSHOT_AGE_MS)
        kept = self._number_of(MIN_KEPT, 1)
        newest_first = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0, reverse=True)
        expired = [
            each.snapshot_id
            for number, each in enumerate(newest_first)
            if number >= kept and (each.timestamp_ms < oldest_ms or number >= SNAPSHOTS_MAX)
        ]
        ExpireSnapshots(self._transaction).by_ids([each for each in expired if each not in named]).commit()

    def _number_of(self, name: str, otherwise: int) -> int:
        """The property of the table with this name, which is a whole number. Raises `Refused` if it is not one."""
        value = self.table.metadata.properties.get(name, str(otherwise))
        if not value.isdecimal():
            raise Refused(f"{'.'.join(self.table.name())}: the property {name} is {value}, and not a whole number")
        return int(value)
