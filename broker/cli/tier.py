"""`moldau tier`: shows and verifies the contents of remote storage, and deletes objects that belong to no segment."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli import client_channels
from moldau.broker.cli.invocation import CommandError, Invocation

DESCRIPTION: Final = """\
Look after the remote storage of a cluster.

  status   by topic and partition: segments, bytes, the ranges of both tiers, what is not copied yet, what is deleted
  verify   read every object, and compare it with its metadata and its checksums
  sweep    delete objects that belong to no segment: --dry-run shows them

The metadata comes from a broker (--bootstrap). 'verify' without one goes by the manifests in the storage."""
EPILOG: Final = """\
examples:
  moldau tier status --bootstrap 127.0.0.1:9092
  moldau tier verify --bootstrap 127.0.0.1:9092 --storage s3://bucket/prefix --topic orders
  moldau tier verify --storage /mnt/archive
  moldau tier sweep --bootstrap 127.0.0.1:9092 --config server.properties --dry-run

The exit status is 0 if all is well, 1 if objects are missing or damaged or the command could not be carried out, 2 if
its arguments are wrong. 'sweep --dry-run' ends with 3 if it found orphans."""

ACTIONS: Final = ("status", "verify", "sweep")
DEFAULT_AGE_HOURS: Final = 24.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    client_channels.add_arguments(parser, is_required=False)
    parser.add_argument("--storage", metavar="URL", help="the storage, as moldau.tiered.storage names it")
    parser.add_argument("--endpoint", metavar="URL", help="of a server that is compatible with S3")
    parser.add_argument("--region", metavar="NAME", help="of the bucket")
    parser.add_argument("-c", "--config", metavar="FILE", help="take the three above from this server.properties")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    parser.add_argument("--dry-run", action="store_true", help="sweep: show what would be deleted")
    parser.add_argument(
        "--min-age-hours",
        type=float,
        default=DEFAULT_AGE_HOURS,
        metavar="N",
        help="sweep: leave alone what is younger (default: %(default)s)",
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Run the action that the arguments name. Returns the exit status."""
    import asyncio

    from moldau.broker.cli.tiered_storage import TierCommand, show_status, sweep, verify
    from moldau.storage.tiered.port import RemoteStorageError

    if arguments.action in ("status", "sweep") and arguments.bootstrap is None:
        raise CommandError(f"'tier {arguments.action}' needs --bootstrap: the metadata says what belongs to what")
    if arguments.min_age_hours < 0:
        raise CommandError("--min-age-hours must not be negative")
    command = TierCommand(arguments, invocation)
    action = {"status": show_status, "verify": verify, "sweep": sweep}[arguments.action]
    try:
        return asyncio.run(action(command))
    except RemoteStorageError as error:
        raise CommandError(f"{command.storage_url or 'the storage'}: {error}") from None
