"""The options that name a catalog of Iceberg, and its failures, for the commands that open one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from moldau.broker.cli.invocation import CommandError

NEEDED: Final = ("pyiceberg", "pyarrow", "numpy", "sqlalchemy")
"""The packages of the extra `iceberg`."""


def add_arguments(parser: argparse.ArgumentParser, *, is_required: bool = False) -> None:
    """Declare the arguments."""
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
    """The properties of `--catalog-property`. Raises `CommandError`."""
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
def failures_reported() -> Iterator[None]:
    """Turn the failures of a catalog into `CommandError`."""
    from sqlalchemy.exc import SQLAlchemyError

    from moldau.lake.opening import CATALOG_ERRORS

    try:
        yield
    except (SQLAlchemyError, *CATALOG_ERRORS) as problem:
        raise CommandError(f"the catalog: {type(problem).__name__}: {problem}") from None
