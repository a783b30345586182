"""A change from the console: a form under the user's access. What is hard to undo is shown before it is made.

form ──▶ Preview, a page whose form holds what would change ──▶ that form ──▶ Changed: a line in the log
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.broker.console.page import Refusal, Visit, error_name

TIMEOUT_MS: Final = 30_000
PARTITIONS_MAX: Final = 1_000
"""The most partitions of one change: the form of its preview has a field for each."""


class Changed(NamedTuple):
    """A change that was made."""

    what: str
    """The change in words, for the log."""
    location: str
    """The page that shows the result."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Preview:
    """What a change would do. The form on its page sends `fields` and `confirm=yes` to `action`."""

    title: str
    action: str
    back: str
    """The address to return to without a change."""
    button: str
    columns: list[str]
    rows: list[list[str | int | None]]
    fields: dict[str, str]
    warning: str = ""
    notes: list[str] = field(default_factory=list)


Change = Callable[[Visit, Mapping[str, str]], Awaitable[Changed | Preview]]


def is_confirmed(form: Mapping[str, str]) -> bool:
    """Whether the form is that of a preview."""
    return form.get("confirm") == "yes"


def number(form: Mapping[str, str], name: str, default: int, bits: int = 32) -> int:
    """A whole number of a form that fits a field of a request with `bits` bits. Raises `Refusal`."""
    text = form.get(name, "").strip()
    with contextlib.suppress(ValueError):
        value = int(text) if text else default
        if -1 << (bits - 1) <= value < 1 << (bits - 1):
            return value
    raise Refusal(400, f"{name} is {text[:40]!r}, and must be a whole number of at most {bits} bits")


def refuse_error(code: int, message: str | None = None) -> None:
    """Raise `Refusal` for the error of a response."""
    if code:
        raise Refusal(409, f"not changed: {message or error_name(code)}")
