"""`moldau lake verify`: checks that a table has each offset of its topic once. Declares the options that name the
catalog of a table, for this and other commands.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation

if TYPE_CHECKING:
    from moldau.lake.verification import VerificationResult

DESCRIPTION: Final = """\
Count each offset of a topic in the Iceberg table that `moldau follow-table` keeps of it: once in the table, among its
dead letters, or among the records that did not fit. Nothing is changed.

  verify   read partition and offset of all rows, and compare them with the files' own lists of offsets, with the
           ledger of the table and, with --path, with the records of the log"""
EPILOG: Final = """\
examples:
  moldau lake verify --warehouse warehouse --table orders
  moldau lake verify --warehouse warehouse --table orders --path /var/lib/moldau --json
  moldau lake verify --catalog prod --table sales.orders

The exit status is 0 if all is well, 1 if something is wrong, which is named, or the command could not be carried out,
2 if its arguments are wrong. It needs the extra 'iceberg' (pip install 'moldau[iceberg]')."""

NEEDED: Final = ("pyiceberg", "pyarrow", "numpy", "sqlalchemy")
"""The packages that the extra `iceberg` installs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("action", choices=("verify",), help="what to do")
    add_catalog_arguments(parser, is_required=True)
    parser.add_argument("--table", required=True, metavar="TOPIC", help="the topic, or NAMESPACE.NAME of its table")
    parser.add_argument("--path", metavar="PLACE[,PLACE]", help="compare with the records that these places still have")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show progress on standard error (default: if it is a terminal)",
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Verify the table, and print the result. Returns the exit status."""
    invocation.require(NEEDED, "iceberg")
    from moldau.broker.cli.read import failures_as_command_errors

    with failures_as_command_errors(), catalog_failures_as_command_errors():
        try:
            name, found = verify_table(arguments, invocation)
        finally:
            invocation.errors.erase()
    if arguments.json:
        from json import dumps

        invocation.out.say(dumps({"table": name, **asdict(found)}))
    else:
        for line in lines_of(name, found, has_path=arguments.path is not None):
            invocation.out.say(line)
    return 1 if found.findings else 0


def verify_table(arguments: argparse.Namespace, invocation: Invocation) -> tuple[str, VerificationResult]:
    """Verify the table that the arguments name. Returns its name and the result. Raises the errors of
    `Verification.run`.
    """
    from moldau.lake.opening import load_table, opened_catalog
    from moldau.lake.reading import TopicReading
    from moldau.lake.verification import Verification
    from moldau.storage.files.local_files import LocalFiles

    is_shown = invocation.errors.is_terminal if arguments.progress is None else arguments.progress
    catalog = opened_catalog(arguments.warehouse, arguments.catalog, properties_of(arguments))
    table = load_table(catalog, arguments.table)
    verification = Verification(catalog, table, invocation.errors.show if is_shown else lambda _: None)
    reading, ledger = None, verification.ledger
    if arguments.path is not None:
        options = {"path": arguments.path, "kafka.isolation.level": ledger.isolation}
        reading = TopicReading(LocalFiles(), options, ledger.topic, time.sleep)
    return verification.name, verification.run(reading)


def lines_of(name: str, found: VerificationResult, *, has_path: bool) -> list[str]:
    """The result of a verification as lines of text. `has_path`: whether the table was compared with the log."""
    unfit = f"{found.misfits_count:,} records that did not fit ({found.letters_count:,} dead letters)"
    lines = [f"{name}: {found.rows_count:,} rows in {found.files_count:,} files, {unfit}"]
    if found.foreign_count:
        lines.append(f"{found.foreign_count:,} files are of other programs, and have no list of their offsets")
    if not found.is_counted:
        lines.append(
            "the table was begun before what is taken was counted: what earlier commits lost is found with --path alone"
        )
    if has_path:
        lines.append(f"compared with {found.records_count:,} records of the log")
    if found.undecided_count:
        lines.append(
            f"{found.undecided_count:,} keys of the log have no row: partitions were added to the topic, and a record "
            "of another partition, which the log does not have any more, may have deleted them"
        )
    lines += found.findings
    lines.append(f"{len(found.findings):,} findings" if found.findings else "each offset is there once")
    return lines


def add_catalog_arguments(parser: argparse._ActionsContainer, *, is_required: bool = False) -> None:
    """Declare the options that name an Iceberg catalog."""
    where = parser.add_mutually_exclusive_group(required=is_required)
    where.add_argument("--warehouse", metavar="DIR", help="a directory for the catalog and its tables")
    where.add_argument(
        "--catalog", metavar="NAME", help="a catalog of pyiceberg's configuration, or of --catalog-property"
    )
    parser.add_argument(
        "--catalog-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the catalog, as pyiceberg names it: type=rest, uri=http://host:8181; may be given several times",
    )


def properties_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Parse the properties in `--catalog-property`. Raises `CommandError`."""
    found = {}
    for each in arguments.catalog_property:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise CommandError(f"--catalog-property {each}: give NAME=VALUE, as in uri=http://localhost:8181")
        found[name] = value
    if found and arguments.catalog is None:
        raise CommandError("--catalog-property needs --catalog: the catalog of --warehouse has its properties")
    return found


@contextmanager
def catalog_failures_as_command_errors() -> Iterator[None]:
    """A context that turns the exceptions of a catalog into `CommandError`."""
    from sqlalchemy.exc import SQLAlchemyError

    from moldau.lake.opening import CATALOG_ERRORS

    try:
        yield
    except (SQLAlchemyError, *CATALOG_ERRORS) as problem:
        raise CommandError(f"the catalog: {type(problem).__name__}: {problem}") from None
