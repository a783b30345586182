"""Checks the settings of the console that have a syntax of their own: the mask rules, and the URL of the schema
registry.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.broker.config.config import Config
from moldau.tables.values.masks import mask_rule


def broken_console_rules(config: Config) -> Iterator[str]:
    """The problems of the console's settings in a configuration."""
    for rule in config.entries("moldau.console.masks"):
        try:
            mask_rule(rule)
        except ValueError as problem:
            yield f"moldau.console.masks: {problem}"
    registry = config.settings.password("moldau.console.schema.registry")
    if registry is not None and not registry.reveal().startswith(("http://", "https://")):
        yield "moldau.console.schema.registry must begin with http:// or https://"
