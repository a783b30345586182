"""The search of `moldau erase --sql`: DuckDB evaluates an SQL predicate over the records of a topic."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.cli.daily.failures import raise_wrong_arguments
from moldau.broker.cli.read import engine_errors, failures_as_command_errors, unquoted_names

if TYPE_CHECKING:
    from argparse import Namespace

    from moldau.broker.cli.daily.session import Session

SECURITY: Final = ("security.", "sasl.", "ssl.")
"""The prefixes of the client properties that are also used when the topic is read for `--sql`."""
NEEDED: Final = ("duckdb", "pyarrow", "numpy")


def check_predicate(given: Namespace) -> None:
    """Raise `WrongArguments` if options that belong to `--sql` are given without it."""
    if given.sql is None and (given.registry is not None or given.schema is not None):
        raise_wrong_arguments("--registry and --schema decode values for --sql")


def chosen_offsets(session: Session, topic: str) -> dict[int, set[int]]:
    """The offsets of the records for which the predicate of `--sql` is true, by partition. Records of aborted
    transactions are included. If a value cannot be decoded, the search fails, because it is not known whether the
    predicate would choose it. Raises `CommandError`.
    """
    session.invocation.require(NEEDED, "sql")
    import duckdb

    from moldau.tables.reading.topics import read_topic
    from moldau.tables.refusals import Refused

    given, settings = session.arguments, session.client.settings
    options = {f"kafka.{name}": value for name, value in settings.properties.items() if name.startswith(SECURITY)}
    found: dict[int, set[int]] = defaultdict(set)
    with failures_as_command_errors():
        records = read_topic(
            settings.bootstrap_text,
            topic,
            isolation="read_uncommitted",
            options=options,
            registry=given.registry,
            schema=given.schema,
        )
        try:
            rows: Any = duckdb.connect().from_arrow(records).filter(given.sql).project('partition, "offset"')
            for batch in rows.to_arrow_reader():
                for partition, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    found[partition].add(offset)
        except engine_errors() as problem:
            names = unquoted_names(given.sql, [])
            said = "; ".join(filter(None, str(problem).partition("\n\nLINE ")[0].splitlines()))
            raise Refused(f"--sql: {said}" + (f"; {names[0]} needs double quotes" if names else "")) from None
    return found
