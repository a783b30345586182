"""A Delta table that a job writes: tasks write its files, and one commit by the driver makes them part of the table.

    <output>/_delta_log/        the log of the table
    <output>/run-<id>/*.parquet the files of one run; those of a run that died are in no commit, and VACUUM removes them

The ledger of an export is in the same commits. A commit has an application transaction (Delta's `txn` action) for every
partition of the topic. Its application id is `moldau-export:<topic>:<partition>`, its version the offset at which the
next run begins. Application transactions survive checkpoints and the cleaning of Delta's log, and a commit fails if
another run has committed the same partition meanwhile.

Two more application transactions have the id of the topic. So the offsets of a topic that was deleted are not taken for
those of another topic of its name. A run that begins anew replaces all rows of the table in its commit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from moldau.spark_jobs.jobs.export_ledger import ExportedFile, ExportRun, check_isolation, check_topic_id
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.tables.options.offset_choices import EARLIEST
from moldau.tables.refusals import Refused

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from deltalake import CommitProperties, DeltaTable

CLUSTER_PROPERTY: Final = "moldau.cluster.id"
"""The property of a Delta table with the id of the cluster that it was exported from."""
TOPIC_IDS_ENTRY: Final = "moldau.topic.ids"
"""The entry in the history of a Delta table with the ids of the topics that a commit has read, as JSON."""
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
RANGES_ENTRY: Final = "moldau.ranges"
"""The entry in the history of a Delta table with the offsets that a commit has added, as JSON."""


class DeltaOutput:
    """A Delta table in a directory of this machine, or of a mount that driver and executors share."""

    def __init__(self, output: str) -> None:
        """Prepare a run with a directory of its own. Raises `Refused` if deltalake is not installed."""
        if find_spec("deltalake") is None:
            raise Refused("format delta: deltalake is not installed: pip install 'moldau[delta]'")
        self.output = Path(output).absolute()
        self._run = f"run-{uuid4().hex}"

    @property
    def run_directory(self) -> Path:
        """The directory into which the tasks of this run write."""
        return self.output / self._run

    @property
    def is_foreign(self) -> bool:
        """Whether the output directory holds files but no Delta table."""
        return self.output.exists() and any(self.output.iterdir()) and self.table() is None

    def table(self) -> DeltaTable | None:
        """The Delta table in its present version; None if there is none. Raises `Refused`."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(str(self.output)) if DeltaTable.is_deltatable(str(self.output)) else None
        except DeltaError as problem:
            raise Refused(f"{self.output}: {problem}") from None

    def prepare(self, schema: pa.Schema, name: str, cluster_id: str | None) -> DeltaTable:
        """Make the directory for the files of this run, and the Delta table if there is none. Returns the table. Raises
        `Refused` if the table has other columns, and OSError."""
        import pyarrow as pa
        from deltalake import DeltaTable

        table = self.table()
        if table is None:
            table = DeltaTable.create(
                str(self.output),
                schema=schema,
                mode="ignore",
                name=name,
                configuration={CLUSTER_PROPERTY: cluster_id} if cluster_id is not None else None,
                raise_if_key_not_exists=False,
            )
        columns = pa.schema(table.schema().to_arrow()).names
        if columns != schema.names:
            raise Refused(f"{self.output} has the columns {', '.join(columns)}, not {', '.join(schema.names)}")
        self.run_directory.mkdir(parents=True)
        return table

    def commit(
        self,
        table: DeltaTable,
        files: Sequence[ExportedFile],
        properties: CommitProperties,
        *,
        overwrites: bool = False,
    ) -> None:
        """Make files of this run part of the Delta table. With `overwrites` they replace the files of earlier commits.
        Raises `Refused` if another process has made a commit that conflicts with this one."""
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        written: list[AddAction | RemoveAction] = [
            AddAction(
                f"{self._run}/{each.name}",
                each.size,
                {},
                int((self.run_directory / each.name).stat().st_mtime * 1000),
                True,
                json.dumps({"numRecords": each.rows}),
            )
            for each in files
        ]
        mode = "overwrite" if overwrites else "append"
        try:
            table.create_write_transaction(written, mode, table.schema(), commit_properties=properties)
        except DeltaError as problem:
            self.discard()
            raise Refused(f"{self.output}: the commit failed, and nothing of this run was added: {problem}") from None

    def discard(self) -> None:
        """Remove the files of this run, which no commit names."""
        shutil.rmtree(self.run_directory, ignore_errors=True)


class DeltaLedger:
    """The ledger of an export into a Delta table: an end offset for each partition, in Delta's application
    transactions."""

    def __init__(self, output: str, schema: pa.Schema) -> None:
        """Prepare a run. Raises `Refused` if deltalake is not installed."""
        self._delta = DeltaOutput(output)
        self._schema = schema

    @property
    def is_foreign(self) -> bool:
        return self._delta.is_foreign

    def ends(
        self,
        topic: str,
        cluster_id: str | None,
        topic_id: str | None = None,
        *,
        isolation: str | None = None,
        is_anew: bool = False,
    ) -> dict[int, int]:
        """The offset at which the next run begins, by partition. Empty if the export begins anew. Raises `Refused` if
        the table is of another topic or cluster, `IsolationDiffers` and `TopicRecreated`."""
        table = self._delta.table()
        if table is None:
            return {}
        described = table.metadata()
        if described.name != topic:
            raise Refused(f"{self._delta.output} is a table of {described.name or 'something else'}, not of {topic}")
        known = described.configuration.get(CLUSTER_PROPERTY)
        if None not in (known, cluster_id) and known != cluster_id:
            raise Refused(f"{self._delta.output} is an export of cluster {known}, not of {cluster_id}")
        if is_anew:
            return {}
        check_topic_id(f"{self._delta.output} is an export", topic, topic_id_in(table, topic), topic_id)
        check_isolation(str(self._delta.output), topic, isolation_in(table, topic), isolation)
        return exported_ends_in(table, topic)

    def begin(self, topic: str, cluster_id: str | None) -> int:
        """Begin a run of the export. Returns the number of the run, which is the version of the table that the run will
        make if no other process writes. Raises `Refused` and OSError."""
        version: int = self._delta.prepare(self._schema, topic, cluster_id).version()
        return version + 1

    def staging(self, number: int) -> Path:
        return self._delta.run_directory

    def commit(self, run: ExportRun) -> None:
        """Make the files of a run part of the Delta table, and store its end offsets. Raises `Refused` if another
        process has exported the same offsets."""
        from deltalake import CommitProperties, Transaction

        table = self._delta.table()
        assert table is not None, "a run has begun"
        if not run.is_anew:
            self._check_starts(run, table)
        ends = {partition: end for partition, (_, end) in run.ranges.items()}
        if run.is_anew:
            ends = (
                dict.fromkeys(exported_ends_in(table, run.topic), EARLIEST) | ends
            )  # The new topic may have fewer partitions.
        # The search for the ends stops at a partition without one, and another run may read those that this one lacks.
        for partition in range(max(ends, default=0)):
            if partition not in ends and table.transaction_version(application_of(run.topic, partition)) is None:
                ends[partition] = EARLIEST
        versions = {application_of(run.topic, partition): end for partition, end in sorted(ends.items())}
        described = {
            RANGES_ENTRY: json.dumps({str(each): list(offsets) for each, offsets in sorted(run.ranges.items())})
        }
        if run.topic_id is not None:
            halves = topic_id_halves(run.topic_id)
            versions |= dict(zip(topic_id_applications(run.topic), halves, strict=True))
            described[TOPIC_IDS_ENTRY] = json.dumps({run.topic: run.topic_id})
        if run.isolation is not None:
            versions[isolation_application(run.topic)] = ISOLATIONS.index(run.isolation)
        transactions = [Transaction(application, version) for application, version in versions.items()]
        properties = CommitProperties(custom_metadata=described, app_transactions=transactions)
        self._delta.commit(table, run.files, properties, overwrites=run.is_anew)

    def _check_starts(self, run: ExportRun, table: DeltaTable) -> None:
        """Raise `Refused` if another run has committed offsets of this run since this one was planned. A run that
        commits after this check makes the commit of this one fail.
        """
        for partition, (start, _) in run.ranges.items():
            end = table.transaction_version(application_of(run.topic, partition))
            if end is not None and end > start:
                self._delta.discard()
                raise Refused(f"{self._delta.output}: another run has exported {run.topic}-{partition} up to {end}")


def exported_ends_in(table: DeltaTable, topic: str) -> dict[int, int]:
    """The offset at which the next run begins, by partition, from the application transactions of a Delta table."""
    found: dict[int, int] = {}
    for partition in count():
        end = table.transaction_version(application_of(topic, partition))
        if end is None:
            return found
        found[partition] = end
    raise AssertionError("a partition without a transaction ends the search")


def topic_id_in(table: DeltaTable, topic: str) -> str | None:
    """The id of the topic whose offsets the Delta table has; None if no commit has stored it."""
    first, second = map(table.transaction_version, topic_id_applications(topic))
    if first is None or second is None:
        return None
    return uuid_text(first.to_bytes(8, "big", signed=True) + second.to_bytes(8, "big", signed=True))


def isolation_in(table: DeltaTable, topic: str) -> str | None:
    """The isolation level of the export in a Delta table; None if no commit has stored it."""
    version = table.transaction_version(isolation_application(topic))
    return None if version is None else ISOLATIONS[version]


def isolation_application(topic: str) -> str:
    """The id of the application transaction in Delta's log whose version is the isolation level of an export, as an
    index of `ISOLATIONS`."""
    return f"moldau-export:{topic}:isolation"


def topic_id_halves(topic_id: str) -> tuple[int, int]:
    """The id of a topic as two signed integers of 64 bits, because the version of an application transaction is such an
    integer."""
    uuid = parse_uuid(topic_id)
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)


def topic_id_applications(topic: str) -> tuple[str, str]:
    """The application ids under which Delta's log has the halves of the topic's id."""
    return f"moldau-export:{topic}:id:0", f"moldau-export:{topic}:id:1"


def application_of(topic: str, partition: int) -> str:
    """The application id under which Delta's log has the exported end offset of a topic's partition."""
    return f"moldau-export:{topic}:{partition}"
