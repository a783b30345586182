"""`moldau reassign`: moves replicas of partitions to other brokers."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions, add_dry_run

DESCRIPTION: Final = "The replicas of partitions: which brokers have them, and moves to others."
EPILOG: Final = f"""\
examples:
  moldau reassign move orders --brokers 2,3,4
  moldau reassign move orders --brokers 2,3,4 --execute --wait
  moldau reassign move orders:0,2 payments --brokers 1,2,3 --replication-factor 3 --execute
  moldau reassign move --from-file plan.json --execute
  moldau reassign list
  moldau reassign cancel orders --execute

'move' spreads replicas and first leaders over the brokers, one after the other; replicas that are on one of them
already stay. --from-file takes the JSON of Apache Kafka's kafka-reassign-partitions.sh. Moves copy all records: they
are only shown, until --execute does it. 'list' shows those that are not done.
{EXIT_STATUSES}"""
ACTIONS: Final = {
    "list": "placement.moving:list_moves",
    "move": "placement.moving:move",
    "cancel": "placement.moving:cancel",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "list", "list the moves that are not done")
    action.add_argument("names", nargs="*", metavar="TOPIC[:PARTITION,...]")

    action = add_action(actions, "move", "move replicas to brokers")
    action.add_argument("names", nargs="*", metavar="TOPIC[:PARTITION,...]")
    action.add_argument("--brokers", metavar="IDS", help="those that have the replicas afterwards, such as 2,3,4")
    action.add_argument("-r", "--replication-factor", type=int, metavar="N", help="default: as many as there are")
    action.add_argument("--from-file", metavar="FILE", help="the plan of kafka-reassign-partitions.sh, instead")
    action.add_argument("--wait", action="store_true", help="show the progress until all moves are done")
    add_dry_run(action)

    action = add_action(actions, "cancel", "cancel moves: the replicas stay as they were")
    action.add_argument("names", nargs="*", metavar="TOPIC[:PARTITION,...]")
    add_dry_run(action)
