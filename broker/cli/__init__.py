"""The command `moldau`: one module for each subcommand."""

from __future__ import annotations

from broker.cli.command import main

__all__ = ["main"]
