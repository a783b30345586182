"""Lists that are handled whole: a request in which one of them has too many elements is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.protocol.errors import ErrorCode
from moldau.protocol.refusals import refused

if TYPE_CHECKING:
    from moldau.broker.network.route import Handler, RequestContext


def bounded(limits: Mapping[str, int], answer: Handler, *, is_cut: bool = False) -> Handler:
    """A handler that refuses a request in which a list has too many elements: it is handled in one step.

    Lists inside the elements of another one count together. `is_cut`: the outer list is cut into parts, and each list
    inside its elements counts by itself.

    DIVERGES: Apache Kafka limits these requests by their size alone, those of members of groups among them.
    """
    paths = [(path.split("."), most) for path, most in limits.items()]
    count = _longest if is_cut else _count

    def handle(context: RequestContext, request: object) -> object:
        for path, most in paths:
            if count(request, path, most) > most:
                return refused(request, context.version, ErrorCode.INVALID_REQUEST)
        return answer(context, request)

    return handle


def _longest(holder: object, path: Sequence[str], most: int) -> int:
    """The number of elements of the longest list at the end of a path; the search ends above `most`."""
    elements = getattr(holder, path[0]) or ()
    if len(path) == 1:
        return len(elements)
    longest = 0
    for each in elements:
        longest = max(longest, _longest(each, path[1:], most))
        if longest > most:
            break
    return longest


def _count(holder: object, path: Sequence[str], most: int) -> int:
    """The number of elements in the lists at the end of a path; the count ends above `most`."""
    elements = getattr(holder, path[0]) or ()
    if len(path) == 1:
        return len(elements)
    if not isinstance(elements, list | tuple):
        return _count(elements, path[1:], most)  # a struct that holds the list
    total = 0
    for each in elements:
        total += _count(each, path[1:], most)
        if total > most:
            break
    return total
