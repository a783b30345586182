"""`moldau tier`: shows and verifies the contents of remote storage, and deletes objects that belong to no segment."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import add_action, add_actions
from moldau.broker.cli.invocation import CommandError, Invocation

DESCRIPTION: Final = """\
Look after the remote storage of a cluster: by the metadata that its brokers have, or, with 'verify' and no
--bootstrap-server, by the manifests in the storage."""
EPILOG: Final = """\
examples:
  moldau tier status
  moldau tier verify -b 127.0.0.1:9092 --storage s3://bucket/prefix --topic orders
  moldau tier verify --storage /mnt/archive
  moldau tier sweep --config server.properties --dry-run

The exit status is 0 if all is well, 1 if objects are missing or damaged, if nothing was ever tiered or the command
could not be carried out, 2 if its arguments are wrong, 4 if the user cannot log in, 5 if no broker can be reached.
'sweep --dry-run' ends with 3 if it found orphans."""

DEFAULT_AGE_HOURS: Final = 24.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    none = dict.fromkeys(("storage", "endpoint", "region", "config"))
    parser.set_defaults(**none, dry_run=False, min_age_hours=DEFAULT_AGE_HOURS)
    actions = add_actions(parser)
    _add_topics(
        add_action(
            actions,
            "status",
            "show segments, bytes and the ranges of both tiers by partition, and what is not copied yet",
        )
    )
    action = add_action(actions, "verify", "read every object, and compare it with its metadata and its checksums")
    _add_topics(action)
    _add_storage(action)
    action = add_action(actions, "sweep", "delete objects that belong to no segment")
    _add_topics(action)
    _add_storage(action)
    action.add_argument("--dry-run", action="store_true", help="show what would be deleted")
    action.add_argument(
        "--min-age-hours",
        type=float,
        default=DEFAULT_AGE_HOURS,
        metavar="N",
        help="leave alone what is younger (default: %(default)s)",
    )


def _add_topics(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic; may be repeated")


def _add_storage(action: argparse.ArgumentParser) -> None:
    group = action.add_argument_group("storage")
    group.add_argument("--storage", metavar="URL", help="the storage, as moldau.tiered.storage names it")
    group.add_argument("--endpoint", metavar="URL", help="of a server that is compatible with S3")
    group.add_argument("--region", metavar="NAME", help="of the bucket")
    group.add_argument("-c", "--config", metavar="FILE", help="take the three above from this server.properties")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Run the action that the arguments name. Returns the exit status. Raises `CommandError`."""
    import asyncio

    from moldau.broker.cli.daily.failures import raise_wrong_arguments
    from moldau.broker.cli.tiered_storage import TierCommand, reached, show_status, sweep, verify
    from moldau.storage.tiered.port import RemoteStorageError

    action = {"status": show_status, "verify": verify, "sweep": sweep}[arguments.action]
    if arguments.min_age_hours < 0:
        raise_wrong_arguments("--min-age-hours must not be negative")
    command = TierCommand(arguments, invocation)
    if action is not show_status and command.storage_url is None:
        raise_wrong_arguments("the storage is not known: --storage URL, or --config FILE with moldau.tiered.storage")
    if action is not verify or arguments.bootstrap_server is not None:
        command.cluster_at = reached(arguments, invocation)
    try:
        return asyncio.run(action(command))
    except RemoteStorageError as error:
        raise CommandError(f"{command.storage_url or 'the storage'}: {error}") from None
