"""The rules for names of topics, and the names of topics in metrics."""

from __future__ import annotations

from typing import Final

NAME_LENGTH_MAX: Final = 249
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def refusal_of_name(name: str) -> str | None:
    """Kafka's error message about an illegal topic name; None for a legal one."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL.issuperset(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def metric_name(name: str) -> str:
    """The name of a topic in metrics: each dot is replaced by an underscore.

    Two topics must not have the same name in metrics, so their names must not differ in dots and underscores alone.
    """
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    return "." in name or "_" in name
