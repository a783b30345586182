"""`moldau acl`: lists, adds, removes and explains permissions."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_action, add_actions, add_dry_run

DESCRIPTION: Final = "The permissions (ACLs) of a cluster with an authorizer."
EPILOG: Final = f"""\
examples:
  moldau acl list
  moldau acl list --topic orders --matching
  moldau acl add --principal User:alice --operation Read --operation Describe --topic orders
  moldau acl add --principal User:alice --consumer --topic orders --group 'shop-' --prefixed
  moldau acl add --principal User:eve --deny --operation All --topic '*'
  moldau acl remove --principal User:alice --execute
  moldau acl explain --principal User:alice --operation Write --topic orders -c server.properties

'explain' says which ACL decides, by all ACLs of the cluster; the super users and allow.everyone.if.no.acl.found come
from the server.properties of a node (-c). It ends with 3 where the operation is denied.
{EXIT_STATUSES}"""
ACTIONS: Final = {
    "list": "acls.rules:list_acls",
    "add": "acls.rules:add_acls",
    "remove": "acls.rules:remove_acls",
    "explain": "acls.explaining:explain_decision",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = add_actions(parser)
    action = add_action(actions, "list", "list the ACLs, all or some of them")
    _add_filter(action)

    action = add_action(actions, "add", "add ACLs: each operation for each principal on each resource")
    action.add_argument(
        "--principal", action="append", required=True, metavar="TYPE:NAME", help="such as User:alice; may be repeated"
    )
    action.add_argument(
        "--operation", action="append", default=[], metavar="NAME", help="such as Read; may be repeated"
    )
    action.add_argument(
        "--producer",
        action="store_true",
        help="Write, Create and Describe on the topics, Write and Describe on the transactional ids",
    )
    action.add_argument("--consumer", action="store_true", help="Read and Describe on the topics, Read on the groups")
    action.add_argument("--deny", action="store_true", help="deny what is otherwise allowed")
    action.add_argument("--host", default="*", metavar="ADDRESS", help="of the client (default: any)")
    action.add_argument("--prefixed", action="store_true", help="the names are the beginnings of names")
    _add_resources(action)

    action = add_action(actions, "remove", "remove the ACLs that are selected")
    _add_filter(action)
    add_dry_run(action)

    action = add_action(actions, "explain", "say which ACL allows or denies an operation")
    action.add_argument("--principal", required=True, metavar="TYPE:NAME", help="such as User:alice")
    action.add_argument("--operation", required=True, metavar="NAME", help="such as Read, Write or DescribeConfigs")
    action.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="of the client (default: %(default)s)")
    action.add_argument("-c", "--config", metavar="FILE", help="server.properties of a node: its super users")
    _add_resources(action)


def _add_filter(action: argparse.ArgumentParser) -> None:
    action.add_argument("--principal", metavar="TYPE:NAME", help="only those of this principal")
    action.add_argument("--operation", metavar="NAME", help="only those of this operation")
    action.add_argument("--host", metavar="ADDRESS", help="only those of this address")
    action.add_argument("--prefixed", action="store_true", help="only those of prefixes with these names")
    action.add_argument("--matching", action="store_true", help="all that concern a resource of this name")
    _add_resources(action)


def _add_resources(action: argparse.ArgumentParser) -> None:
    action.add_argument("--topic", action="append", default=[], metavar="NAME")
    action.add_argument("--group", action="append", default=[], metavar="NAME")
    action.add_argument("--transactional-id", action="append", default=[], metavar="NAME")
    action.add_argument("--delegation-token", action="append", default=[], metavar="ID")
    action.add_argument(
        "--user-principal",
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="a user, for operations on its tokens",
    )
    action.add_argument("--cluster", action="store_true")
