"""A change that a user makes from the console: a form, carried out with the user's permissions. A change that is hard
to undo is answered with a preview first.

form ──▶ ChangePreview, a page whose form holds what would change ──▶ that form ──▶ ChangeResult: a line in the log
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.broker.console.page import PageRequest, Refusal, error_name

TIMEOUT_MS: Final = 30_000
PARTITIONS_MAX: Final = 1_000
"""The most partitions of one change. The form of its preview has a field for each partition."""


class ChangeResult(NamedTuple):
    """The result of a change that was made."""

    what: str
    """The change in words, for the log."""
    location: str
    """The page that shows the result."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ChangePreview:
    """A preview of a change. The form on its page sends `fields` and `confirm=yes` to `action`, which makes the
    change.
    """

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


Change = Callable[[PageRequest, Mapping[str, str]], Awaitable[ChangeResult | ChangePreview]]


def is_confirmed(form: Mapping[str, str]) -> bool:
    """Whether a form was sent from a preview, so that the change is to be made."""
    return form.get("confirm") == "yes"


def number_in_form(form: Mapping[str, str], name: str, default: int, bits: int = 32) -> int:
    """Read a whole number from a field of a form; `default` if the field is empty. Raises `Refusal` if it does not fit
    into a signed number of `bits` bits.
    """
    text = form.get(name, "").strip()
    with contextlib.suppress(ValueError):
        value = int(text) if text else default
        if -1 << (bits - 1) <= value < 1 << (bits - 1):
            return value
    raise Refusal(400, f"{name} is {text[:40]!r}, and must be a whole number of at most {bits} bits")


def raise_refusal(code: int, message: str | None = None) -> None:
    """Raise `Refusal` with the message if the error code of a response is not 0."""
    if code:
        raise Refusal(409, f"not changed: {message or error_name(code)}")
