"""`moldau config`: reads and changes the settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions

DESCRIPTION: Final = "The settings of topics, brokers, groups and client metrics that the cluster keeps."
EPILOG: Final = f"""\
examples:
  moldau config get topic orders
  moldau config get topic orders retention.ms --all
  moldau config set topic orders retention.ms=86400000 cleanup.policy=compact,delete
  moldau config unset topic orders retention.ms
  moldau config set broker 1 log.cleaner.threads=2
  moldau config set brokers log.cleaner.threads=2
  moldau config get group orders-app --all

'brokers' takes no name: they are the settings of all brokers together. A setting that a node reads from its file alone
is not changed here.
{EXIT_STATUSES}"""
KINDS: Final = ("topic", "broker", "brokers", "broker-logger", "group", "client-metrics")
ACTIONS: Final = {
    "get": "configs.commands:get",
    "set": "configs.commands:set_settings",
    "unset": "configs.commands:unset_settings",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "get", "show settings that are set, with where each comes from")
    action.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    action.add_argument(
        "words", nargs="*", metavar="NAME [SETTING]", help="of what (brokers: none), and which settings"
    )
    action.add_argument("-a", "--all", action="store_true", help="the defaults too")
    for verb, summary, word in (
        ("set", "set settings", "NAME=VALUE"),
        ("unset", "give settings their defaults", "NAME"),
    ):
        action = add_action(actions, verb, summary)
        action.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
        action.add_argument(
            "words", nargs="+", metavar=f"[NAME] {word}", help="of what (brokers: none), and the settings"
        )
        action.add_argument("--dry-run", action="store_true", help="have the cluster check it, and change nothing")


def meant_by(words: Sequence[str]) -> str | None:
    """The command line of `moldau` that does what these arguments of `kafka-configs.sh` do, for a hint; None if they
    are not arguments of that tool.
    """
    from moldau.broker.cli.daily.configs.kafka_form import moldau_command

    return moldau_command(words)
