"""`moldau backup`: takes backups of a cluster, lists and verifies them."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_connection
from moldau.broker.cli.invocation import Invocation

DESCRIPTION: Final = """\
Back up a whole cluster into a store: every topic byte for byte, the offsets of groups, transactions, settings,
permissions, users and quotas. STORE is a directory that exists, or the URL of an object store (s3://, gs://, az://).
A store has the backups of one cluster. Each backup is complete, and has in common with others what has not changed:
only what is new is copied. 'moldau restore' makes log directories of a backup."""
EPILOG: Final = f"""\
examples:
  moldau backup /backups/prod --path /var/lib/moldau
  moldau backup s3://bucket/prod --path /data/1,/data/2,/data/3 --keep 14 --max-bytes-per-second 50000000
  moldau backup /backups/prod -b broker1:9092 --command-config admin.properties
  moldau backup /backups/prod --list
  moldau backup /backups/prod --verify
  moldau backup /backups/prod --verify 20261129T221701Z-1

--path names log directories of Moldau or of Apache Kafka, of running or stopped nodes: enough that each partition and
the metadata log are in one of them. They are read, never written. Without it the brokers are asked, and the leader of
the controllers for the metadata: the user needs READ on all topics, DESCRIBE and CLUSTER_ACTION on the cluster.

A backup that was killed goes on when it is taken again.
{EXIT_STATUSES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("store", metavar="STORE", help="a directory that exists, or the URL of an object store")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--path", metavar="DIR,...", help="back up what these log directories have")
    action.add_argument("--list", action="store_true", help="show the backups in the store")
    action.add_argument(
        "--verify", nargs="?", const="latest", metavar="ID", help="read and check all of a backup (default: the newest)"
    )
    parser.add_argument(
        "--bootstrap-controller",
        metavar="HOST:PORT",
        help="controllers of the cluster, if the brokers do not say how they are reached",
    )
    taking = parser.add_argument_group("taking a backup")
    taking.add_argument("--keep", type=int, metavar="N", help="remove all but the newest N backups afterwards")
    taking.add_argument("--max-bytes-per-second", type=int, metavar="N", help="copy at most so many bytes a second")
    storage = parser.add_argument_group("object store")
    storage.add_argument("--endpoint", metavar="URL", help="of a server that is compatible with S3")
    storage.add_argument("--region", metavar="NAME", help="of the bucket")
    add_connection(parser)


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Take, list or verify backups. Returns the exit status. Raises `CommandError`."""
    from moldau.broker.cli.backups.command import run_command

    return run_command(arguments, invocation)
