"""The settings of the console that have forms of their own: the rules of masking, and the schema registry."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.broker.config.config import Config
from moldau.tables.values.masks import mask_rule


def broken_console_rules(config: Config) -> Iterator[str]:
    """The rules that a configuration breaks."""
    for rule in config.entries("moldau.console.masks"):
        try:
            mask_rule(rule)
        except ValueError as problem:
            yield f"moldau.console.masks: {problem}"
    registry = config.settings.password("moldau.console.schema.registry")
    if registry is not None and not registry.reveal().startswith(("http://", "https://")):
        yield "moldau.console.schema.registry must begin with http:// or https://"
