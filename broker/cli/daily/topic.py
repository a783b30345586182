"""`moldau topic`: lists, describes, makes, changes and deletes topics and their records."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions, add_dry_run

DESCRIPTION: Final = "The topics of a cluster: Moldau's or Apache Kafka's."
EPILOG: Final = f"""\
examples:
  moldau topic list
  moldau topic create orders --partitions 3 --config retention.ms=86400000
  moldau topic describe orders
  moldau topic alter orders --partitions 6 --set cleanup.policy=compact --unset retention.ms
  moldau topic delete-records orders --before 2d --execute
  moldau topic delete orders --execute

What loses records is only shown, until --execute does it.
{EXIT_STATUSES}"""

ACTIONS: Final = {
    "list": "topic_views:list_topics",
    "describe": "topic_views:describe",
    "create": "topic_changes:create",
    "alter": "topic_changes:alter",
    "delete": "topic_changes:delete",
    "delete-records": "topic_changes:delete_records",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "list", "list the topics with their partitions and replicas")
    action.add_argument("names", nargs="*", metavar="TOPIC", help="only these; * stands for any text, as in 'orders*'")
    action.add_argument("--internal", action="store_true", help="the internal topics too, such as __consumer_offsets")
    action.add_argument("--under-replicated", action="store_true", help="only those with replicas that are not in sync")

    action = add_action(
        actions, "describe", "show partitions, leaders, replicas, offsets, sizes and settings of topics"
    )
    action.add_argument("names", nargs="+", metavar="TOPIC")

    action = add_action(actions, "create", "make topics")
    action.add_argument("names", nargs="+", metavar="TOPIC")
    action.add_argument("-p", "--partitions", type=int, metavar="N", help="default: num.partitions of the cluster")
    action.add_argument(
        "-r", "--replication-factor", type=int, metavar="N", help="default: default.replication.factor of the cluster"
    )
    action.add_argument(
        "--replica-assignment", metavar="IDS", help="brokers of each partition, the leader first: 1:2,2:3,3:1"
    )
    _add_settings(action, "--config", "--set")
    action.add_argument("--if-not-exists", action="store_true", help="leave those alone that are there already")
    action.add_argument("--dry-run", action="store_true", help="have the cluster check it, and make nothing")

    action = add_action(actions, "alter", "add partitions to topics, change their settings")
    action.add_argument("names", nargs="+", metavar="TOPIC")
    action.add_argument("-p", "--partitions", type=int, metavar="N", help="how many there are afterwards")
    _add_settings(action, "--set", "--config")
    action.add_argument("--unset", action="append", default=[], metavar="NAME", help="a setting that gets its default")
    action.add_argument("--dry-run", action="store_true", help="have the cluster check it, and change nothing")

    action = add_action(actions, "delete", "delete topics with their records")
    action.add_argument("names", nargs="+", metavar="TOPIC")
    action.add_argument("--if-exists", action="store_true", help="leave out those that are not there")
    add_dry_run(action)

    action = add_action(actions, "delete-records", "delete the oldest records of topics")
    action.add_argument("names", nargs="*", metavar="TOPIC")
    action.add_argument("--before", metavar="WHERE", help="an offset, a time, a duration ago such as 7d, or latest")
    action.add_argument("--partition", type=int, action="append", metavar="N", help="only this one; may be repeated")
    action.add_argument(
        "--offset-json-file", metavar="FILE", help="what Apache Kafka's kafka-delete-records.sh takes, instead"
    )
    add_dry_run(action)


def _add_settings(action: argparse.ArgumentParser, *names: str) -> None:
    action.add_argument(
        *names,
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the topic; may be repeated",
    )
