"""A page of the console: a function describes it as a value, which becomes HTML for a browser or JSON for a program.

request ──▶ PageRequest ──▶ describe ──▶ value ──┬──▶ template ──▶ HTML
                                                 └──▶ as_json ──▶ JSON      Accept: application/json, or ?format=json

The classes of these values have no comparison and no repr, which saves 6 KB of memory for each class.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from moldau.broker.console.kafka_client import ConsolePorts, KafkaClient
from moldau.protocol import errors
from moldau.protocol.errors import ErrorCode
from moldau.security.access import AclOperation, ResourceKind

ROWS_MAX: Final = 50
"""The most rows of a list on one page."""
SLICE: Final = 500
"""The number of elements of a long list that are processed in one iteration of the event loop."""
DIGITS_MAX: Final = 18
T = TypeVar("T")


class Refusal(Exception):
    """Raised if a page cannot be shown. `status` is the HTTP status of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class PageRequest:
    """One request for a page: its path, its parameters, and a client with the permissions of its user."""

    def __init__(
        self,
        client: KafkaClient,
        path: str,
        variables: Mapping[str, str],
        query: Mapping[str, str],
    ) -> None:
        self.client = client
        self.path = path
        self.variables = variables
        self.query = query
        self._asked: set[str] = set()
        """The names of the query parameters that the page has read."""

    @property
    def ports(self) -> ConsolePorts:
        return self.client.ports

    def field(self, name: str) -> str:
        """A query parameter, without spaces around it; empty if it is not given."""
        return self.exact(name).strip()

    def exact(self, name: str) -> str:
        """A query parameter, with the spaces around it, for example a key that begins with spaces; empty if it is not
        given.
        """
        self._asked.add(name)
        return self.query.get(name, "")

    def whole_number(self, name: str, default: int, least: int = 0, most: int = (1 << 63) - 1) -> int:
        """A query parameter as a whole number from `least` to `most`; `default` if it is not given. Raises
        `Refusal`.
        """
        text = self.field(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise Refusal(400, f"{name} is {text[:40]!r}, and must be a whole number from {least} to {most}")
        return value

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """A query parameter that must be one of `choices`; the first of them if it is not given. Raises `Refusal`."""
        words = list(choices)
        text = self.field(name) or words[0]
        if text not in words:
            raise Refusal(400, f"{name} is {text[:40]!r}, and must be one of {', '.join(words)}")
        return text

    def refuse_unasked(self) -> None:
        """Raise `Refusal` if the query has a parameter that the page has not read, such as a misspelled one."""
        from difflib import get_close_matches

        for name in sorted(self.query.keys() - self._asked):
            meant = get_close_matches(name, self._asked, 1) or sorted(self._asked)
            raise Refusal(400, f"there is no parameter {name[:40]!r} here: did you mean {' or '.join(meant)}?")

    def may(self, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        """Whether the user may do an operation on a resource."""
        return self.client.may(operation, kind, name)

    def require(self, operation: AclOperation, kind: ResourceKind, name: str) -> None:
        """Raise `Refusal` unless the user may do an operation on a resource."""
        if not self.may(operation, kind, name):
            raise Refusal(
                403,
                f"{self.client.access.principal} needs {operation.name} on {kind.name.lower()} {name} here",
            )

    def link(self, **changes: object) -> str:
        """The address of this page with some query parameters changed. The value None removes a parameter."""
        query = {**self.query, **changes}
        query.pop("format", None)
        kept = {name: value for name, value in query.items() if value is not None and value != ""}
        return f"{self.path}?{urlencode(kept)}" if kept else self.path

    @property
    def as_json(self) -> str:
        """The address of this page in its JSON form."""
        link = self.link()
        return f"{link}{'&' if '?' in link else '?'}format=json"


class Page(NamedTuple):
    """A page of the console: its path, its template, and the function that describes it."""

    path: str
    """The path of the page, which may have variables: `/topics/{name}`."""
    template: str
    describe: Callable[[PageRequest], Awaitable[object]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows(Generic[T]):
    """One page of a list that is sorted by name."""

    rows: list[T]
    total: int
    """The number of elements of the whole list."""
    next_page: str | None
    """The address of the next part; None if this is the last one."""


async def choose_names(
    names: Iterable[str], visit: PageRequest, is_shown: Callable[[str], bool], size: int = ROWS_MAX
) -> tuple[list[str], int, str | None]:
    """Choose the names for one page: the first `size` names after the query parameter `after` that contain the text of
    the query parameter `q`. Returns these names sorted, the number of all names that contain the text, and the address
    of the next part, or None. The list may be long: it is processed in slices, and never sorted as a whole.
    """
    wanted, after = visit.field("q").lower(), visit.exact("after")
    kept: list[str] = []
    total = has_more = 0
    piece: list[str] = []

    def keep() -> None:
        nonlocal kept, has_more
        has_more |= len(kept) + len(piece) > size
        kept = heapq.nsmallest(size, kept + piece)
        piece.clear()

    for count, name in enumerate(names, 1):
        if wanted in name.lower() and is_shown(name):
            total += 1
            if name > after:
                piece.append(name)
        if count % SLICE == 0:
            keep()
            await asyncio.sleep(0)
    keep()
    return kept, total, visit.link(after=kept[-1]) if has_more else None


async def gather_results(*asked: Awaitable[T]) -> list[T]:
    """Wait for several requests at the same time, and return their results in order."""
    return list(await asyncio.gather(*asked))


def error_name(code: int) -> str:
    """The name of an error code of the protocol; empty for NONE."""
    return "" if code == ErrorCode.NONE else errors.error_name(code)


def decimal(text: str) -> int | None:
    """Parse a text of at most 18 decimal digits; None for any other text."""
    return int(text) if len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal() else None


def path_to(*steps: str) -> str:
    """The address of a page whose path has these steps. They are percent-encoded."""
    return "/" + "/".join(quote(step, safe="") for step in steps)


def as_json(value: object) -> object:
    """Convert a value of a page for `json.JSONEncoder`, which calls this for each nested value: a dataclass to its
    fields, bytes to hexadecimal text.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    assert isinstance(value, (bytes, memoryview)), f"no page holds a {type(value).__name__}"
    return value.hex()
