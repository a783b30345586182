"""A setting: one row of a table in the catalogue, with its type, default, allowed values, stance, scope and
description.

A row of a table takes two lines, columns separated by blanks (no column holds one):

    name  type  default  allowed  stance[:reason]  scope  [internal]
        What the setting means.

default   null, required, "" for an empty text, [] for an empty list, else the text as it stands in a file
allowed   any | 1.. | 0..1 | 1..9|-1 | one-of:a,b | any-case:a,b | list[:a,b] | non-empty-list[:a,b] | non-empty |
          non-null | voters | host-ports | replicas | offset-reset
stance    honoured | accepted:reason | refused:reason; the reasons stand in broker/config/reasons.py
scope     broker settings: read-only | per-broker | cluster-wide; other tables: broker settings that give the default
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from moldau.protocol.late_dataclass import dataclass

HIDDEN: Final = "[hidden]"


class Password:
    """A secret text. `repr`, `str` and `format` give `[hidden]`, so that no log line, dump or traceback shows it. Only
    `reveal` returns the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Password], tuple[str]]:
        raise TypeError("a password is not pickled")


Value = bool | int | float | str | Password | tuple[str, ...] | None


class Stance(Enum):
    """Whether this broker honours a setting, accepts it without effect, or refuses it."""

    HONOURED = "honoured"  # it works as in Apache Kafka
    ACCEPTED = "accepted"  # it has no effect; one warning at start if it is set to something else than its default
    # REFUSED: any value but the default stops the start, because the node would not do what the setting asks.
    REFUSED = "refused"


class Scope(Enum):
    """The scope in which a broker setting may be changed at run time."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ValueType(IntEnum):
    """The types of values, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Apache Kafka 4.3.1, or of this broker only."""

    name: str
    type: ValueType
    default_text: str | None
    is_required: bool
    allowed: str
    stance: Stance
    reason_key: str
    scope: Scope
    defaults_from: tuple[str, ...]
    is_internal: bool
    documentation: str

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is secret, so that it never leaves the process."""
        return self.type is ValueType.PASSWORD


Catalogue = dict[str, Setting]

_TYPES: Final = {kind.name.lower(): kind for kind in ValueType}
_STANCES: Final = {stance.value: stance for stance in Stance}
_SCOPES: Final = {scope.value: scope for scope in Scope}


def read_rows(rows: str) -> Catalogue:
    """Parse a table of settings, in the format that the docstring of this module describes. Returns the settings by
    name, in the order of the table."""
    lines = rows.strip().split("\n")
    assert len(lines) % 2 == 0, "a row has two lines"
    pairs = zip(lines[0::2], lines[1::2], strict=True)
    return {setting.name: setting for setting in (_read_row(columns, words) for columns, words in pairs)}


def _read_row(columns: str, words: str) -> Setting:
    name, kind, default, allowed, stance, scope, *flags = columns.split()
    stance, _, reason_key = stance.partition(":")
    is_broker_scope = scope in _SCOPES
    return Setting(
        name,
        _TYPES[kind],
        None if default in ("null", "required") else "" if default in ('""', "[]") else default,
        default == "required",
        allowed,
        _STANCES[stance],
        reason_key,
        _SCOPES[scope] if is_broker_scope else Scope.CLUSTER_WIDE,
        () if is_broker_scope or scope == "-" else tuple(scope.split(",")),
        bool(flags),
        words.strip(),
    )
