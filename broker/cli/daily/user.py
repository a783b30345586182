"""`moldau user`: lists, makes, changes and deletes users with SCRAM credentials."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions, add_dry_run

DESCRIPTION: Final = "The users of a cluster with a SCRAM login."
EPILOG: Final = f"""\
examples:
  moldau user list
  moldau user create alice < password.txt
  moldau user update alice --mechanism SCRAM-SHA-512 --password-file password.txt
  moldau user delete alice --execute

The password is the first line of the file, or of standard input; a terminal is asked for it. The cluster never sees it:
it gets the salted hash. What a user may do is said by 'moldau acl'.
{EXIT_STATUSES}"""
ACTIONS: Final = {
    "list": "principals.users:list_users",
    "create": "principals.users:create",
    "update": "principals.users:update",
    "delete": "principals.users:delete",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "list", "list the users with their mechanisms")
    action.add_argument("names", nargs="*", metavar="USER", help="only these")
    _add_credential(add_action(actions, "create", "make a user"))
    _add_credential(add_action(actions, "update", "give a user another password, or a further mechanism"))
    action = add_action(actions, "delete", "delete credentials of a user: no login by them is taken any more")
    action.add_argument("name", metavar="USER")
    action.add_argument("--mechanism", metavar="NAME", help="only this one (default: all that the user has)")
    add_dry_run(action)


def _add_credential(action: argparse.ArgumentParser) -> None:
    action.add_argument("name", metavar="USER")
    action.add_argument("--mechanism", metavar="NAME", default="SCRAM-SHA-512", help="default: %(default)s")
    action.add_argument("--iterations", type=int, metavar="N", default=4096, help="of the hash (default: %(default)s)")
    action.add_argument("--password-file", metavar="FILE", help="its first line is the password")
