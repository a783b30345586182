"""Translates the arguments of `kafka-configs.sh` into a command line of `moldau`, for a hint."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentError, ArgumentParser
from collections.abc import Sequence
from typing import Final

TYPES: Final = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "groups": "group",
    "client-metrics": "client-metrics",
}
"""The kinds of resources by the entity types of `kafka-configs.sh`. Each kind is also an option of that tool, whose
value is the name of a resource.
"""
OF_QUOTAS: Final = {"users": "--user", "clients": "--client-id", "ips": "--ip"}
COMMA: Final = re.compile(r",(?![^\[]*\])")
"""Matches the commas between settings, but not those in a list in brackets."""


def moldau_command(words: Sequence[str]) -> str | None:
    """The command line of `moldau` that does what `kafka-configs.sh` does with these arguments. A word in capitals,
    such as NAME, stands for a value that is missing. None if there is no option of that tool among the arguments.
    """
    tool = ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    for option in ("entity-type", "entity-name", "add-config", "delete-config", *TYPES.values()):
        tool.add_argument(f"--{option}")
    tool.add_argument("--alter", action="store_true")
    tool.add_argument("--describe", action="store_true")
    try:
        given, _ = tool.parse_known_args(words)
    except ArgumentError:
        return None
    options = vars(given)
    if not any(options.values()):
        return None
    named = [(kind, name) for kind in TYPES.values() if (name := options[kind.replace("-", "_")])]
    kind, name = named[0] if named else (given.entity_type or "KIND", given.entity_name)
    settings = [each.replace("[", "").replace("]", "") for each in COMMA.split(given.add_config or "") if each]
    removed = [each for each in (given.delete_config or "").split(",") if each]
    is_set = bool(settings or (given.alter and not removed))
    changed = settings or removed or (["SETTING=VALUE"] if given.alter else [])
    if kind in OF_QUOTAS and "SCRAM-" in "".join(changed):
        return shlex.join(["moldau", "user", "create" if is_set else "delete", name or "NAME"])
    action = "set" if is_set else "unset" if removed else "get"
    if kind in OF_QUOTAS:
        listing = "list" if action == "get" else action
        return shlex.join(["moldau", "quota", listing, OF_QUOTAS[kind], name or "NAME", *changed])
    kind = TYPES.get(kind, kind)
    subject = ["brokers"] if kind == "broker" and not name else [kind, name or "NAME"]
    return shlex.join(["moldau", "config", action, *subject, *changed])
