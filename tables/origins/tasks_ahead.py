"""Requests bytes from remote sources (`RemoteSegmentSource`) for tasks that no thread has begun.

Tasks begin approximately in their order. `begin` requests the slices of a task and of all tasks before it, then those
of later tasks, as far as the sources allow. `end` cancels the requests of a task that is not read any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from moldau.tables.origins.port import RemoteSegmentSource, Slice


class TasksAhead:
    """The requests of the tasks of one read. Threads may share it."""

    def __init__(self, tasks: Sequence[Any]) -> None:
        self._tasks = tasks
        self._numbers = {id(task): number for number, task in enumerate(tasks)}
        self._lock = Lock()
        self._next = 0
        """The number of the first task without requests."""
        self._requested: set[int] = set()
        """The numbers of the tasks with requests that have not ended."""

    def begin(self, task: Any) -> None:
        """Request the slices that are to be read next. Called when `task` begins, and while it is being read."""
        if self._next == len(self._tasks):
            return
        number = self._numbers[id(task)]
        with self._lock:
            while self._next < len(self._tasks):
                if not self._request(self._tasks[self._next], must=self._next <= number):
                    return
                self._requested.add(self._next)
                self._next += 1

    def end(self, task: Any) -> None:
        """Cancel the requests of a task that is not read any further."""
        number = self._numbers[id(task)]
        with self._lock:
            if number not in self._requested:
                return
            self._requested.remove(number)
        for each in distant_slices(task):
            each.source.drop_ahead(each)

    def stop(self) -> None:
        """Request nothing more, and cancel what is requested."""
        with self._lock:
            self._next = len(self._tasks)
            requested = list(self._requested)
        for number in requested:
            self.end(self._tasks[number])

    @staticmethod
    def _request(task: Any, *, must: bool) -> bool:
        """Request the slices of a task. Returns False if there was no room for the first of them."""
        for position, each in enumerate(distant_slices(task)):
            if not each.source.request_ahead(each, must=must or position > 0):
                return False
        return True


def distant_slices(task: Any) -> Iterator[Any]:
    """Yield the slices of a task whose source is remote. A task that consists of rows has no slices."""
    for each in task:
        if isinstance(each, Slice) and isinstance(each.source, RemoteSegmentSource):
            yield each
