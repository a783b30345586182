"""`moldau elect`: elects the preferred leaders of partitions, or any replica that lives."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions, add_dry_run

DESCRIPTION: Final = "The leaders of partitions."
EPILOG: Final = f"""\
examples:
  moldau elect preferred
  moldau elect preferred orders payments:0,3
  moldau elect unclean orders:2 --execute

The preferred leader is the first replica of a partition. 'unclean' is for partitions without a leader: a replica that
is not in sync becomes the leader, and records that it lacks are lost. It is only shown, until --execute does it.
{EXIT_STATUSES}"""
ACTIONS: Final = {"preferred": "placement.electing:elect_preferred", "unclean": "placement.electing:elect_unclean"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "preferred", "make the first replica of partitions their leader")
    action.add_argument("names", nargs="*", metavar="TOPIC[:PARTITION,...]", help="default: all partitions")
    action.add_argument("--dry-run", action="store_true", help="show for which partitions, and change nothing")
    action = add_action(actions, "unclean", "make any replica that lives the leader of partitions that have none")
    action.add_argument("names", nargs="+", metavar="TOPIC[:PARTITION,...]")
    add_dry_run(action)
