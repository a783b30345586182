"""`moldau version`: say which version this is."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from broker.cli.invocation import Invocation
from broker.release import KAFKA_VERSION, installed_version

DESCRIPTION: Final = "Say which version this is, and which Apache Kafka it stands for."
EPILOG: Final = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommand takes nothing."""


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """One line on standard output."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    invocation.out.say(f"moldau {installed_version()} (Apache Kafka {KAFKA_VERSION}, Python {python})")
    return 0
