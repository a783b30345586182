"""The rules for names of topics."""

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
    """The name with each dot replaced by an underscore.

    Metrics use it, so two topics must not differ in these characters alone.
    """
    return name.replace(".", "_")


def may_collide(name: str) -> bool:
    return "." in name or "_" in name
