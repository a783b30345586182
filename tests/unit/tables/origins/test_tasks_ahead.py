"""The bytes of the tasks that follow are requested, as far as their source allows, and cancelled if unread."""

from __future__ import annotations

from typing import NamedTuple

from moldau.tables.origins.port import SegmentFile, Slice, StoredSegment
from moldau.tables.origins.tasks_ahead import TasksAhead


class Source:
    """A distant source that has room for some slices."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.held: list[int] = []
        """The start offsets of the slices that are requested."""

    def open(self, wanted: Slice) -> SegmentFile:
        raise AssertionError("nothing is opened here")

    def request_ahead(self, wanted: Slice, *, must: bool) -> bool:
        if not must and len(self.held) >= self.room:
            return False
        self.held.append(wanted.start_offset)
        return True

    def drop_ahead(self, wanted: Slice) -> None:
        if wanted.start_offset in self.held:
            self.held.remove(wanted.start_offset)


class Near(NamedTuple):
    """A source that is near."""

    def open(self, wanted: Slice) -> SegmentFile:
        raise AssertionError("nothing is opened here")


def tasks_of(source: Source, count: int, slices: int = 1) -> list[tuple[Slice, ...]]:
    segment = StoredSegment(0, 1_000, 10_000, "key", is_growing=False)

    def one(number: int) -> Slice:
        return Slice("t", 0, source, segment, 0, 10, None, number, number + 1)

    return [tuple(one(task * slices + each) for each in range(slices)) for task in range(count)]


def test_the_tasks_after_the_begun_one_are_requested_while_there_is_room() -> None:
    source = Source(3)
    tasks = tasks_of(source, 6)
    ahead = TasksAhead(tasks)
    ahead.begin(tasks[0])
    assert source.held == [0, 1, 2]
    source.held.remove(0)  # A task opens it.
    ahead.begin(tasks[0])
    assert source.held == [1, 2, 3]
    ahead.begin(tasks[5])
    assert source.held == [1, 2, 3, 4, 5], "a task that begins is requested without room as well"


def test_a_task_is_requested_with_all_its_slices() -> None:
    source = Source(3)
    tasks = tasks_of(source, 4, slices=2)
    TasksAhead(tasks).begin(tasks[0])
    assert source.held == [0, 1, 2, 3]


def test_requests_of_a_task_that_ends_or_is_never_begun_are_cancelled() -> None:
    source = Source(3)
    tasks = tasks_of(source, 6)
    ahead = TasksAhead(tasks)
    ahead.begin(tasks[0])
    ahead.end(tasks[0])
    assert source.held == [1, 2]
    ahead.stop()
    ahead.begin(tasks[1])
    ahead.end(tasks[4])
    assert source.held == []


def test_tasks_that_are_near_or_made_of_rows_need_no_requests() -> None:
    near = [(each[0]._replace(source=Near()),) for each in tasks_of(Source(1), 2)]
    ahead = TasksAhead([*near, [("row",)]])
    ahead.begin(near[0])
    ahead.stop()
