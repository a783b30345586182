"""`moldau random-uuid`: prints an id for a cluster or a directory, like kafka-storage random-uuid."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.invocation import Invocation

DESCRIPTION: Final = "Print a new id, of a cluster or of a directory: 16 random bytes as 22 characters of base64."
EPILOG: Final = """\
examples:
  moldau format -c server.properties -t $(moldau random-uuid)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: the subcommand has no arguments."""


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print one id on standard output."""
    from secrets import token_bytes

    from moldau.broker.cli.format_storage import fresh_cluster_id

    invocation.out.say(fresh_cluster_id(token_bytes))
    return 0
