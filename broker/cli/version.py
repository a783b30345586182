"""`moldau version`: prints the version."""

from __future__ import annotations

import argparse
from typing import Final

from moldau import __version__
from moldau.broker.cli.invocation import Invocation
from moldau.broker.release import KAFKA_VERSION, form, python

DESCRIPTION: Final = (
    "Say which version this is, which Apache Kafka it stands for, and whether its hot path is compiled."
)
EPILOG: Final = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no arguments."""


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print the version on standard output."""
    invocation.out.say(f"moldau {__version__} (Apache Kafka {KAFKA_VERSION}, {python()}, {form()})")
    return 0
