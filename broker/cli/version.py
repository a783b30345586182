"""`moldau version`: prints the version."""

from __future__ import annotations

import argparse
from typing import Final

import moldau
from moldau import __version__
from moldau.broker.cli.invocation import Invocation
from moldau.broker.release import KAFKA_VERSION, hot_path_form, interpreter_text, is_compiled

DESCRIPTION: Final = (
    "Say which version this is, which Apache Kafka it stands for, and whether its hot path is compiled."
)
EPILOG: Final = ""


def next_start_text() -> str:
    """Describe in words whether the next start will run the compiled or the plain hot path, for a checkout whose hot
    path is not compiled. Empty if the next start will run the same as this one.
    """
    from pathlib import Path

    root = Path(moldau.__file__).parents[1]
    if is_compiled() or not (root / "building" / "aside.py").is_file():
        return ""
    from building.aside import BackgroundBuild

    return BackgroundBuild(root).outlook()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: the subcommand has no arguments."""


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print the version on standard output."""
    invocation.out.say(f"moldau {__version__} (Apache Kafka {KAFKA_VERSION}, {interpreter_text()}, {hot_path_form()})")
    if told := next_start_text():
        invocation.out.say(told)
    return 0
