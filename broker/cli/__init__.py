"""The command `moldau`: one module for each subcommand."""

from __future__ import annotations

from moldau.broker.cli.command import main

__all__ = ["main"]
