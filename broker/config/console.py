"""The settings of the console that have forms of their own: the rules of masking, and the schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from moldau.broker.config.config import Config

PARTS: Final = ("key", "value", "headers")


def mask_rule_parts(rule: str) -> tuple[str, str, Sequence[str]]:
    """A rule of moldau.console.masks, such as `orders*:value.card.number`, as topics, part and names of fields. Raises
    ValueError.
    """
    topics, _, place = rule.partition(":")
    part, *path = place.split(".")
    if not topics or part not in PARTS or not all(path):
        raise ValueError(f"{rule} is not TOPICS:PART or TOPICS:PART.FIELD, where PART is one of {', '.join(PARTS)}")
    if part == "headers" and path:
        path = [".".join(path)]  # The name of a header may have points.
    return topics, part, path


def broken_console_rules(config: Config) -> Iterator[str]:
    """The rules that a configuration breaks."""
    for rule in config.entries("moldau.console.masks"):
        try:
            mask_rule_parts(rule)
        except ValueError as problem:
            yield f"moldau.console.masks: {problem}"
    registry = config.settings.password("moldau.console.schema.registry")
    if registry is not None and not registry.reveal().startswith(("http://", "https://")):
        yield "moldau.console.schema.registry must begin with http:// or https://"
