"""One run of the command: its streams and environment variables, which a test can replace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from moldau.broker.config import Config


class CommandError(Exception):
    """A failure of a command: the lines to print, the first of which is the summary."""

    def __init__(self, message: str, *details: str) -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True, slots=True)
class Invocation:
    """The output streams and the environment variables of one run."""

    out: Terminal
    errors: Terminal
    variables: Mapping[str, str]


def load_config(file: str | None, data: str | None, overrides: list[str], variables: Mapping[str, str]) -> Config:
    """The configuration of a node: file (or a ready node of one), then environment, then command line."""
    from moldau.broker.config import Config, ConfigError
    from moldau.broker.config.sources import (
        MalformedOverride,
        from_environment,
        read_overrides,
        single_node_defaults,
        unknown_variables,
    )

    settings = single_node_defaults("./data") if file is None else read_file(file)
    settings |= from_environment(variables)
    if data is not None:
        settings["log.dirs"] = data
    try:
        settings |= read_overrides(overrides)
        return Config.load(settings, unknown_variables(variables))
    except MalformedOverride as problem:
        raise CommandError(str(problem)) from None
    except ConfigError as refusal:
        what = "the built-in configuration" if file is None else file
        raise CommandError(f"{what} cannot be used", *refusal.problems) from None


def read_file(file: str) -> dict[str, str]:
    """The settings in a properties file."""
    from moldau.storage.checkpoints.java_properties import MalformedProperties, read_properties

    try:
        with open(file, encoding="utf-8") as text:
            return read_properties(text.read())
    except (OSError, UnicodeDecodeError, MalformedProperties) as problem:
        raise CommandError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
