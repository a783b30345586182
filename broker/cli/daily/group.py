"""`moldau group`: lists and describes groups of every kind, resets their offsets, deletes them."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions, add_dry_run

DESCRIPTION: Final = "The groups of a cluster: classic, consumer, share and Streams groups."
EPILOG: Final = f"""\
examples:
  moldau group list
  moldau group describe orders-app
  moldau group explain orders-app
  moldau group reset orders-app --to 1h
  moldau group reset orders-app --topic orders:0,2 --by -100 --execute
  moldau group reset orders-app --to current --to-file before.csv
  moldau group reset orders-app --from-file before.csv --execute
  moldau group delete orders-app --execute

Resets and deletions are only shown, until --execute does them.
{EXIT_STATUSES}"""
KINDS: Final = ("classic", "consumer", "share", "streams")
ACTIONS: Final = {
    "list": "groups.views:list_groups",
    "describe": "groups.views:describe",
    "explain": "groups.explaining:explain_groups",
    "reset": "groups.changes:reset",
    "delete": "groups.changes:delete",
    "delete-offsets": "groups.changes:delete_offsets",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "list", "list the groups with their kinds and states")
    action.add_argument("names", nargs="*", metavar="GROUP", help="only these; * stands for any text, as in 'orders*'")
    action.add_argument("--type", action="append", choices=KINDS, default=[], help="only this kind; may be repeated")
    action.add_argument("--state", action="append", default=[], metavar="STATE", help="only this state, such as Empty")

    action = add_action(actions, "describe", "show the lag of groups in records and in time, and their members")
    action.add_argument("names", nargs="+", metavar="GROUP")
    action.add_argument("--members", action="store_true", help="the members with all that they read, not the lag")

    action = add_action(actions, "explain", "say why groups lag, rebalance or skip, and what to do next")
    action.add_argument("names", nargs="+", metavar="GROUP")

    action = add_action(actions, "reset", "set where a group without members goes on")
    action.add_argument("name", metavar="GROUP")
    where = action.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", metavar="WHERE", help="earliest, latest, current, an offset, a time, or a duration ago such as 1h"
    )
    where.add_argument("--by", type=int, metavar="N", help="so many offsets forward, or back: --by -100")
    where.add_argument("--from-file", metavar="FILE", help="lines of topic,partition,offset")
    _add_topics(action, "default: those for which the group has offsets")
    action.add_argument("--to-file", metavar="FILE", help="write the new offsets there, for --from-file")
    add_dry_run(action)

    action = add_action(actions, "delete", "delete groups without members, with their offsets")
    action.add_argument("names", nargs="+", metavar="GROUP")
    add_dry_run(action)

    action = add_action(actions, "delete-offsets", "delete the offsets of a group in topics that it does not read")
    action.add_argument("name", metavar="GROUP")
    _add_topics(action, "may be repeated", is_required=True)
    add_dry_run(action)


def _add_topics(action: argparse.ArgumentParser, default: str, *, is_required: bool = False) -> None:
    action.add_argument(
        "--topic",
        action="append",
        default=[],
        required=is_required,
        metavar="TOPIC[:PARTITION,...]",
        help=f"only this topic, or these partitions of it ({default})",
    )
