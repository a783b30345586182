"""`moldau restore`: makes the log directories of a cluster from a backup."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES
from moldau.broker.cli.invocation import Invocation

DESCRIPTION: Final = """\
Make the log directories of a whole cluster from a backup: the same cluster id, topics, offsets, groups, permissions
and users. DIR gets a directory for each node, DIR/1, DIR/2 and so on; 'moldau serve' or Apache Kafka starts on each as
on its own. No node may run on them yet, and nothing of the cluster that was backed up is touched.

Each transaction is whole or undone; one that was open is aborted. The report says everything that is not as it was."""
EPILOG: Final = f"""\
examples:
  moldau restore /backups/prod --to /var/lib/restored
  moldau restore s3://bucket/prod --to /data --at 2026-11-29T06:00 --report restored.json
  moldau restore /backups/prod --to ./copy --single-node 1      then: moldau serve --data ./copy/1
  moldau restore /backups/prod --to ./copy --single-node 1 --topics orders --rename orders=orders.before
  moldau restore /backups/prod --at 2h --dry-run

--at goes back to a time between backups, too: the first backup after it has what it needs. Each log then ends before
its first batch with a later timestamp, and groups and transactions are those of that time.
{EXIT_STATUSES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("store", metavar="STORE", help="what 'moldau backup' wrote to, or a file of 'moldau capture'")
    parser.add_argument("--to", metavar="DIR", help="a directory that is empty or does not exist")
    what = parser.add_argument_group("what is restored")
    what.add_argument("--backup", metavar="ID", help="this backup (default: the newest; with --at the first after it)")
    what.add_argument("--at", metavar="TIME", help="go back to this time, or duration ago")
    what.add_argument("--topics", action="append", default=[], metavar="A,B", help="only these topics")
    what.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="the new name of a topic; may be repeated"
    )
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument(
        "--single-node", type=int, metavar="ID", help="one replica of everything, on this node, which is controller too"
    )
    nodes.add_argument(
        "--controller",
        action="append",
        default=[],
        metavar="ID@HOST:PORT",
        help="the new address of a controller; may be repeated (default: as before; 127.0.0.1:9093 of a single node)",
    )
    report = parser.add_argument_group("report")
    report.add_argument("--report", metavar="FILE", help="write the report to this file as JSON, too")
    report.add_argument("--json", action="store_true", help="print it as JSON")
    report.add_argument("--dry-run", action="store_true", help="only report what a restore would do")
    storage = parser.add_argument_group("object store")
    storage.add_argument("--endpoint", metavar="URL", help="of a server that is compatible with S3")
    storage.add_argument("--region", metavar="NAME", help="of the bucket")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Restore a backup, or print what would be restored. Returns the exit status. Raises `CommandError`."""
    from moldau.broker.cli.backups.command import run_action
    from moldau.broker.cli.backups.restoring import run_restore

    return run_action(run_restore, arguments, invocation)
