"""The command `moldau`: one file for each of its subcommands."""

from __future__ import annotations

from broker.cli.command import main

__all__ = ["main"]
