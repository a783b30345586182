"""Threads decode ahead of the caller: in the order of the tasks, within the memory, and not after the caller stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from moldau.tables.reading.decoding_threads import DecodingThreads

BATCH_SIZE = 800
"""Bytes of a batch."""
BATCHES = 5


def batch_of(task: int, number: int) -> pa.RecordBatch:
    return pa.record_batch({"place": pa.array([task * BATCHES + number] * 100, pa.int64())})


def read_task(task: int) -> Iterator[pa.RecordBatch]:
    for number in range(BATCHES):
        yield batch_of(task, number)


def places(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [batch["place"][0].as_py() for batch in batches]


def decoding(tasks: int, threads: int, read: Callable[[int], Iterator[pa.RecordBatch]] = read_task) -> DecodingThreads:
    return DecodingThreads(range(tasks), read, threads, held_size_max=4 * BATCH_SIZE)


def decoders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "moldau decoding"]


def await_no_thread() -> None:
    for thread in decoders():
        thread.join(10)
    assert decoders() == []


@pytest.mark.parametrize("threads", [0, 1, 2, 4])
def test_batches_come_in_the_order_of_their_tasks(threads: int) -> None:
    finished: list[int] = []
    assert places(decoding(20, threads).batches(finished.append)) == list(range(20 * BATCHES))
    assert finished == list(range(20))


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_error_comes_after_the_batches_before_it(threads: int) -> None:
    def read(task: int) -> Iterator[pa.RecordBatch]:
        yield batch_of(task, 0)
        if task == 2:
            raise ValueError("task 2")
        yield batch_of(task, 1)

    batches = decoding(4, threads, read).batches()
    assert [next(batches)["place"][0].as_py() for _ in range(5)] == [0, 1, 5, 6, 10]
    with pytest.raises(ValueError, match="task 2"):
        next(batches)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_caller_that_takes_nothing_bounds_what_is_computed(threads: int) -> None:
    computed: list[int] = []

    def read(task: int) -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            computed.append(task)
            yield batch_of(task, number)

    batches = decoding(100, threads, read).batches()
    next(batches)
    await_no_thread()
    assert 2 <= len(computed) <= 1 + 4 + threads
    assert places(batches) == list(range(1, 100 * BATCHES))
    await_no_thread()


def test_closing_ends_the_threads_and_closes_the_tasks() -> None:
    closed: list[int] = []

    def read(task: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_task(task)
        finally:
            closed.append(task)

    batches = decoding(100, 2, read).batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    await_no_thread()
    assert 0 in closed and len(closed) <= 8
    with pytest.raises(StopIteration):
        next(batches)


def test_threads_decode_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=10)

    def read(task: int) -> Iterator[pa.RecordBatch]:
        together.wait()
        yield from read_task(task)

    assert places(decoding(2, 2, read).batches()) == list(range(2 * BATCHES))
