"""The arguments that daily commands share."""

from __future__ import annotations

import argparse
from typing import Final

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
EXIT_STATUSES: Final = """\
The exit status is 0 if it was done, 1 if it failed, 2 if the arguments are wrong, 3 if there is no such thing, 4 if the
user has no right or cannot log in, 5 if no broker can be reached."""


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    """Declare one action of a command, with the arguments that every action takes."""
    action = actions.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
    action.formatter_class = _formatter_of(actions)
    add_connection(action)
    return action


def add_actions(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """Add the subparsers of a command, one of which must be chosen."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    actions.formatter_class = parser.formatter_class  # type: ignore[attr-defined]
    return actions


def _formatter_of(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> type[argparse.HelpFormatter]:
    formatter: type[argparse.HelpFormatter] = actions.formatter_class  # type: ignore[attr-defined]
    return formatter


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name the cluster, the login of the user, and the form of the output."""
    group = parser.add_argument_group("cluster and output")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"brokers of the cluster, separated by commas (default: {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument("--command-config", metavar="FILE", help="properties of a client: TLS, SASL, timeouts")
    group.add_argument(
        "-X",
        "--command-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one property of the client; may be repeated",
    )
    group.add_argument("--timeout", type=float, metavar="SECONDS", help="how long to try (default: 30)")
    group.add_argument("--json", action="store_true", help="one JSON object a line, with exact numbers")


def add_filters(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Declare the options that filter records, in a group of arguments with this title. Returns the group."""
    filters = parser.add_argument_group(title)
    filters.add_argument("-k", "--key", metavar="TEXT", help="the key is this")
    filters.add_argument("--grep", metavar="REGEX", help="key or value matches somewhere")
    filters.add_argument(
        "--header", action="append", default=[], metavar="NAME[=VALUE]", help="there is such a header; may be repeated"
    )
    filters.add_argument(
        "--where", action="append", default=[], metavar="FIELD=VALUE", help="this field of a JSON value has this value"
    )
    return filters


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Declare `--dry-run` and `--execute` for an action that loses data. Without `--execute` the action only prints
    what it would do.
    """
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--dry-run", action="store_true", help="show what would be done (the default)")
    either.add_argument("--execute", action="store_true", help="do it")
