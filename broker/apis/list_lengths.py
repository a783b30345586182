"""Counts the elements in the lists of a request. This module is compiled, because every request is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class LengthGuard:
    """Passes long requests of an API to a handler of their own."""

    def __init__(
        self,
        lists: tuple[tuple[str, ...], ...],
        most: int,
        answer: Callable[..., object],
        answer_long: Callable[..., object],
    ) -> None:
        self._lists = lists
        self._most = most
        self._answer = answer
        self._answer_long = answer_long

    def handle(self, context: object, request: object) -> object:
        """Pass a request whose lists have more than `most` elements together to `answer_long`, others to `answer`."""
        if lists_exceed(request, self._lists, self._most):
            return self._answer_long(context, request)
        return self._answer(context, request)


def lists_exceed(request: object, lists: tuple[tuple[str, ...], ...], most: int) -> bool:
    """Whether the lists of a request have more than `most` elements together. `lists` has the field names of each
    list's path; the elements of the innermost lists are counted. An element with an empty inner list counts as one."""
    left = most
    for names in lists:
        elements = getattr(request, names[0])
        if not elements:
            continue
        left -= len(elements)
        if len(names) > 1 and left >= 0:
            for element in elements:
                left -= elements_in(element, names, 1, left) - 1
        if left < 0:
            return True
    return False


def elements_in(element: object, names: Sequence[str], at: int, most: int) -> int:
    """Count the elements of the lists at the path `names[at:]` in an element: at least 1. Stops above `most`."""
    if at == len(names):
        return 1
    below = getattr(element, names[at])
    if not below:
        return 1
    if at + 1 == len(names) or len(below) > most:
        return len(below)
    total = 0
    for each in below:
        total += elements_in(each, names, at + 1, most)
        if total > most:
            break
    return total
