"""Counts the errors in the replies of one API.

The handler of Produce counts its own errors. In the replies of all other APIs error codes are counted when the reply is
encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from moldau.protocol.compiler import Encoder
from moldau.protocol.schema import fields_of

if TYPE_CHECKING:
    from moldau.broker.network.route import Route
    from moldau.protocol.primitives import Chunk

PRODUCE: Final = 0
ERROR_CODE: Final = "error_code"

Walk = Callable[[object], Iterator[int]]


class ErrorCounter:
    """Counts the errors of the routes of a node."""

    def counted(self, route: Route, response_class: type[object], encode: Encoder[object]) -> Encoder[object]:
        """Wrap an encoder so that it counts the errors in a response."""
        walk = None if route.key == PRODUCE else errors_walk(response_class)
        if walk is None:
            return encode

        def encode_and_count(response: object, out: list[Chunk]) -> None:
            route.count_errors(walk(response))
            encode(response, out)

        return encode_and_count


def errors_walk(cls: type[object]) -> Walk | None:
    """A function that finds the error codes other than NONE in a response of this class; None where it has no such
    field.
    """
    names = [(field.name, field.struct, field.is_array) for field in fields_of(cls)]
    has_own = any(name == ERROR_CODE for name, _, _ in names)
    inner = [
        (name, is_array, deeper)
        for name, struct, is_array in names
        if struct is not None and (deeper := errors_walk(struct)) is not None
    ]
    if not has_own and not inner:
        return None

    def walk(value: object) -> Iterator[int]:
        if has_own and (code := getattr(value, ERROR_CODE)):
            yield code
        for name, is_array, deeper in inner:
            found = getattr(value, name)
            for each in found or () if is_array else () if found is None else (found,):
                yield from deeper(each)

    return walk
