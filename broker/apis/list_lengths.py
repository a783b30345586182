"""The number of elements in the lists of a request. Every request is counted, so this module is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class LengthGuard:
    """A handler of an API whose long requests have a handler of their own."""

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
        """Give the request to `answer_long` if its lists have more than `most` elements, otherwise to `answer`."""
        if exceeds(request, self._lists, self._most):
            return self._answer_long(context, request)
        return self._answer(context, request)


def exceeds(request: object, lists: tuple[tuple[str, ...], ...], most: int) -> bool:
    """Whether lists of a request have more than `most` elements together. `lists` has their paths. The innermost lists
    of a path are counted; an element whose list is empty counts as one. The count stops above `most`.
    """
    left = most
    for names in lists:
        elements = getattr(request, names[0])
        if not elements:
            continue
        left -= len(elements)
        if len(names) > 1 and left >= 0:
            for element in elements:
                left -= weight(element, names, 1, left) - 1
        if left < 0:
            return True
    return False


def weight(element: object, names: Sequence[str], at: int, most: int) -> int:
    """The number of elements inside an element, at least 1. `names[at:]` is their path; the count ends above `most`."""
    if at == len(names):
        return 1
    below = getattr(element, names[at])
    if not below:
        return 1
    if at + 1 == len(names) or len(below) > most:
        return len(below)
    total = 0
    for each in below:
        total += weight(each, names, at + 1, most)
        if total > most:
            break
    return total
