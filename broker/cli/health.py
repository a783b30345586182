"""`moldau health`: its exit status says whether a node on this machine is ready."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.invocation import CommandError, Invocation, reason_of

DESCRIPTION: Final = """\
Ask a node whether it serves clients: exit status 0 where it does, 1 where it does not, or where no node answers.

The node must have moldau.http.listener set, as the image has."""
EPILOG: Final = """\
examples:
  moldau health
  moldau health http://127.0.0.1:9464"""
PATIENCE_S: Final = 5
DEFAULT: Final = "http://127.0.0.1:9464"
LOOPBACK: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""The loopback address at which a node answers that listens on every interface. On `::` it takes IPv6 alone."""
VARIABLE: Final = "KAFKA_MOLDAU_HTTP_LISTENER"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument(
        "address", nargs="?", metavar="URL", help=f"the node's moldau.http.listener (default: {DEFAULT})"
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Ask the node once whether it is ready. Returns 0 if so, otherwise 1. Raises `CommandError` if no node answers."""
    from http.client import HTTPConnection, HTTPException

    from moldau.broker.config.listeners import read_http_address

    text = arguments.address or invocation.variables.get(VARIABLE) or DEFAULT
    address = read_http_address(text)
    if address is None:
        raise CommandError(f"{text} is not of the form http://host:port")
    host = LOOPBACK.get(address.host, address.host)
    connection = HTTPConnection(host, address.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        said = response.read().decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as problem:
        raise CommandError(f"no node answers on {text}: {reason_of(problem)}") from None
    finally:
        connection.close()
    invocation.out.say(said)
    return 0 if response.status == 200 else 1
