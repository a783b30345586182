"""The Iceberg tables of `moldau erase --tables`. The command opens them before it sends an erase order, and erases
their rows after all replicas have erased the records. `--verify` reads the tables again.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from moldau.broker.cli.daily.failures import raise_wrong_arguments
from moldau.broker.cli.invocation import CommandError
from moldau.broker.cli.lake import NEEDED, catalog_failures_as_command_errors, properties_of
from moldau.broker.cli.read import failures_as_command_errors

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from moldau.broker.cli.daily.session import Session
    from moldau.lake.erasing import ErasedOffsets


def check_arguments(given: Namespace) -> None:
    """Raise `WrongArguments` if tables are named without a warehouse or a catalog."""
    if given.tables and given.warehouse is None and given.catalog is None:
        raise_wrong_arguments("--tables needs --warehouse DIR or --catalog NAME")


class FollowingTables:
    """The Iceberg tables in `--tables`, whose rows are the records of the topic."""

    def __init__(self, session: Session, topic: str) -> None:
        """Open the Iceberg tables that the arguments name, if any. Raises `CommandError` if a table cannot be opened,
        or is not written from `topic` of this cluster.
        """
        given = session.arguments
        self._session, self._topic = session, topic
        self._tables: dict[str, tuple[Catalog, Table]] = {}
        if not given.tables:
            return
        session.invocation.require(NEEDED, "iceberg")
        from moldau.lake.erasing import check_follows
        from moldau.lake.opening import load_table, opened_catalog

        with failures_as_command_errors(), catalog_failures_as_command_errors():
            catalog = opened_catalog(given.warehouse, given.catalog, properties_of(given))
            for name in filter(None, given.tables.split(",")):
                table = load_table(catalog, name)
                check_follows(table, topic, session.client.cluster_id)
                self._tables[".".join(table.name())] = catalog, table

    def erase(self, runs: Iterable[tuple[int, Sequence[tuple[int, int]]]]) -> list[dict[str, Any]]:
        """Erase the rows of records. `runs` has pairs of a partition and the runs of its offsets. Returns the part of
        the receipt for each table. A failure becomes a part of the receipt too, because the log is erased already.
        """
        if not self._tables:
            return []  # The extra for Iceberg may not be installed, and its import takes seconds.
        from moldau.lake.erasing import erase_rows
        from moldau.lake.sink import SinkPorts

        stated: list[dict[str, Any]] = []
        offsets = offsets_of(runs)
        for name, (catalog, table) in self._tables.items():
            try:
                with failures_as_command_errors(), catalog_failures_as_command_errors():
                    ports = SinkPorts(os.urandom, self._session.now_ms)
                    stated += [each.stated() for each in erase_rows(catalog, table, offsets, ports)]
            except CommandError as problem:
                stated.append({"table": name, "state": "not erased", "problem": str(problem)})
        for each in stated:
            self._session.note(erasure_text(each), *(() if each["state"] == "erased" else ("yellow",)))
        return stated

    def checked(self, runs: Iterable[tuple[int, Sequence[tuple[int, int]]]]) -> list[dict[str, object]]:
        """Count the erased records that the snapshots of each table still have. Returns one row of output for each
        table.
        """
        if not self._tables:
            return []
        from moldau.lake.dead_letters import SUFFIX
        from moldau.lake.erasing import rows_left

        rows: list[dict[str, object]] = []
        with failures_as_command_errors(), catalog_failures_as_command_errors():
            from pyiceberg.exceptions import NoSuchTableError

            offsets = offsets_of(runs)
            for name, (catalog, table) in self._tables.items():
                left = rows_left(table, offsets)
                with suppress(NoSuchTableError):
                    left += rows_left(catalog.load_table((*table.name()[:-1], table.name()[-1] + SUFFIX)), offsets)
                state = "has records" if left else "clean"
                rows.append({"partition": "all", "broker": f"table {name}", "state": state, "records_left": left})
        return rows


def offsets_of(runs: Iterable[tuple[int, Sequence[tuple[int, int]]]]) -> ErasedOffsets:
    """Merge the runs of offsets of several erase orders, by partition."""
    from moldau.lake.erasing import ErasedOffsets

    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for partition, of in runs:
        found[partition] += [(first, last) for first, last in of]
    return ErasedOffsets(found)


def erasure_text(stated: dict[str, Any]) -> str:
    """Describe in words what was erased in a table. `stated` is its part of the receipt."""
    name = stated["table"]
    if "problem" in stated:
        return f"table {name} was not erased: {stated['problem']}"
    text = f"table {name}: {stated['rows']:,} rows erased, {stated['snapshots_expired']:,} snapshots expired"
    if stated["kept_by"]:
        text += f"; these branches and tags still have rows: {', '.join(stated['kept_by'])}"
    if stated["unread"]:
        partitions = ", ".join(map(str, stated["unread"]))
        text += f"; it had not read all erased offsets of partition {partitions}"
    return text
