"""`moldau quota`: lists, sets and removes the quotas of users, clients and addresses."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions

DESCRIPTION: Final = "The quotas of users, client ids and addresses."
EPILOG: Final = f"""\
examples:
  moldau quota list
  moldau quota set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
  moldau quota set --user alice --client-id loader request_percentage=50
  moldau quota set --default-client-id controller_mutation_rate=10
  moldau quota set --ip 10.0.0.7 connection_creation_rate=20
  moldau quota unset --user alice producer_byte_rate

Rates are a second's and hold for each broker: bytes, percent of a thread, partitions that are made or deleted, and
connections.
{EXIT_STATUSES}"""
ACTIONS: Final = {
    "list": "principals.quotas:list_quotas",
    "set": "principals.quotas:set_quotas",
    "unset": "principals.quotas:unset_quotas",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    _add_entity(add_action(actions, "list", "list the quotas, all or those of a user, a client id or an address"))
    action = add_action(actions, "set", "set quotas")
    action.add_argument("quotas", nargs="+", metavar="NAME=VALUE")
    _add_entity(action)
    action.add_argument("--dry-run", action="store_true", help="have the cluster check it, and change nothing")
    action = add_action(actions, "unset", "remove quotas")
    action.add_argument("quotas", nargs="+", metavar="NAME")
    _add_entity(action)
    action.add_argument("--dry-run", action="store_true", help="have the cluster check it, and change nothing")


def _add_entity(action: argparse.ArgumentParser) -> None:
    group = action.add_argument_group("user, client or address; a client id beside a user is that of the user")
    for kind, what in (("user", "NAME"), ("client-id", "ID"), ("ip", "ADDRESS")):
        either = group.add_mutually_exclusive_group()
        either.add_argument(f"--{kind}", metavar=what)
        either.add_argument(f"--default-{kind}", action="store_true", help="all that have no quota of their own")
