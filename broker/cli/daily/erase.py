"""`moldau erase`: erases records from every replica of a topic, and writes a receipt."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_connection, add_dry_run, add_filters
from moldau.broker.cli.invocation import Invocation
from moldau.broker.cli.lake import add_catalog_arguments

DESCRIPTION: Final = "Erase the records that pass the filters from every replica of a topic; offsets stay."
EPILOG: Final = f"""\
examples:
  moldau erase orders --key ada
  moldau erase orders --key ada --execute --receipt ada.json
  moldau erase orders --where customer.id=7 --from 2026-01-01 --execute
  moldau erase --verify ada.json --key ada
  moldau erase orders --key ada --execute --tables orders --warehouse warehouse
  moldau erase --verify ada.json --storage s3://bucket/prefix

Without --execute the records are only counted. The brokers need moldau.erase.enable=true, and the user DELETE and WRITE
on the topic and ALTER on the cluster. A receipt names each replica and segment, and each object in remote storage; some
replica that is away is told, and erases when it is back: --verify checks it then.

With --tables a running 'moldau follow-table' of these tables ends, and can be started again at once.

It does not reach: copies that consumers, mirrors and other topics have, backups, pinned snapshots, other tables.
{EXIT_STATUSES}"""
ACTIONS: Final = {"erase": "erasure.erasing:erase", "verify": "erasure.verifying:verify"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC[:PARTITION,...]")
    filters = add_filters(parser, "which records: those that pass all filters that are given")
    filters.add_argument("--from", dest="begin", metavar="TIME", help="from this time or duration ago on")
    filters.add_argument("--to", dest="end", metavar="TIME", help="before this time or duration ago")
    filters.add_argument("--sql", metavar="PREDICATE", help="this is true, in DuckDB's SQL: \"value.email = 'a@b.c'\"")
    filters.add_argument(
        "--registry", metavar="PLACE", help="of the values for --sql: the URL or a directory of schemas"
    )
    filters.add_argument("--schema", metavar="sample|FILE", help="the type of the values for --sql (as moldau read)")
    receipt = parser.add_argument_group("receipt")
    receipt.add_argument("--receipt", metavar="FILE", help="write it to this file (default: erase-TOPIC-TIME.json)")
    receipt.add_argument("--sign-key", metavar="FILE", help="an Ed25519 key (PEM) that signs the receipt, or checks it")
    receipt.add_argument("--verify", metavar="RECEIPT", help="read every replica again, and tell what is left")
    tables = parser.add_argument_group("tables that follow the topic (docs/lake.md)")
    tables.add_argument(
        "--tables", metavar="TABLE[,...]", help="erase there too: NAMESPACE.NAME, or a topic for its own"
    )
    add_catalog_arguments(tables)
    storage = parser.add_argument_group("remote storage, with --verify")
    storage.add_argument("--storage", metavar="URL", help="read each object of the topic there too, also replaced ones")
    storage.add_argument("--endpoint", metavar="URL", help="of an S3-compatible store")
    storage.add_argument("--region", metavar="NAME", help="of the store")
    add_dry_run(parser)
    add_connection(parser)
    parser.set_defaults(action="erase")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Erase, or check a receipt. Returns the exit status. Raises `CommandError`."""
    from moldau.broker.cli.daily.session import run_action

    if arguments.verify is not None:
        arguments.action = "verify"
    return run_action(ACTIONS, arguments, invocation)
