"""Decodes the tasks of a read in threads, and returns their batches in the order of the tasks, with a bound on the
memory.

Each task is an iterator of batches. The caller takes the batches of the first task, then those of the second one, and
so on; threads decode the tasks that come next.

| of a task  | meaning                                                                                      |
|------------|----------------------------------------------------------------------------------------------|
| waiting    | no thread is in its iterator, which may be in the middle of the task                          |
| running    | one thread is computing its next batch                                                        |
| finished   | all its batches are computed, or an error is kept, which the caller gets after its batches    |

A thread takes the first waiting task as long as the computed batches are below `WAITING_BATCHES_SIZE_MAX`; the task
that the caller waits for is always taken. A thread that finds no task ends, and the caller starts threads when it takes
batches. So if the caller stops taking batches, no thread is left that runs or waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

WAITING_BATCHES_SIZE_MAX: Final = 64 << 20
"""The maximum size (bytes) of computed batches that wait for the caller. Each thread may exceed it by one batch."""
TASKS_AHEAD: Final = 4
"""The number of tasks per thread that may be begun before the caller reaches them. Each begun task keeps a file open,
and what it has read.
"""


@dataclass(slots=True)
class _TaskState:
    """The state of one task of a read."""

    task: Any
    batches: Iterator[pa.RecordBatch] | None = None
    ready: deque[pa.RecordBatch] = field(default_factory=deque)
    is_running: bool = False
    is_finished: bool = False
    error: BaseException | None = None


class DecodingThreads:
    """Decodes tasks in threads. The batches may be taken once."""

    def __init__(
        self,
        tasks: Sequence[Any],
        read_task: Callable[[Any], Iterator[pa.RecordBatch]],
        threads_max: int,
        *,
        held_size_max: int = WAITING_BATCHES_SIZE_MAX,
    ) -> None:
        """`threads_max`: the most threads; 0 decodes in the thread of the caller. `held_size_max`: see
        `WAITING_BATCHES_SIZE_MAX`."""
        self._states = [_TaskState(task) for task in tasks]
        self._read_task = read_task
        self._threads_max = threads_max
        self._held_size_max = held_size_max
        self._held_size = 0
        self._threads_count = 0
        self._first = 0
        """The index of the task whose batches the caller takes now."""
        self._is_stopped = False
        self._changed = Condition()

    def batches(self, finished: Callable[[Any], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all tasks, in the order of the tasks. `finished` is called with a task after its last
        batch. Raises what a task raises, after the batches before the error. Closing the iterator ends the threads."""
        try:
            for number, state in enumerate(self._states):
                self._first = number
                while (batch := self._next(state)) is not None:
                    yield batch
                if finished is not None:
                    finished(state.task)
                state.task = state.batches = None
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop decoding. A thread that is computing a batch ends after it."""
        with self._changed:
            self._is_stopped = True
            for state in self._states:
                state.ready.clear()
                if not state.is_running:
                    self._abandon(state)

    def _next(self, state: _TaskState) -> pa.RecordBatch | None:
        """Return the next batch of `state`, the task that the caller reads; None after its last batch."""
        with self._changed:
            while not state.ready:
                if state.error is not None:
                    raise state.error
                if state.is_finished:
                    return None
                if self._threads_max == 0:
                    state.is_running = True
                    self._compute(state)
                else:
                    self._start_threads()
                    self._changed.wait()
            batch = state.ready.popleft()
            self._held_size -= batch.nbytes
            if self._held_size < self._held_size_max // 2:
                self._start_threads()
            return batch

    def _start_threads(self) -> None:
        """Start threads until there are `threads_max`, or no task is waiting."""
        while self._threads_count < self._threads_max and (state := self._waiting()) is not None:
            state.is_running = True
            self._threads_count += 1
            Thread(target=self._run, args=(state,), name="moldau decoding", daemon=True).start()

    def _run(self, first: _TaskState) -> None:
        state: _TaskState | None = first
        with self._changed:
            while state is not None:
                state.is_running = True
                self._compute(state)
                state = self._waiting()
            self._threads_count -= 1

    def _waiting(self) -> _TaskState | None:
        """The first task that a thread may take; None if there is none."""
        if self._is_stopped:
            return None
        has_room = self._held_size < self._held_size_max
        for state in self._states[self._first : self._first + TASKS_AHEAD * max(1, self._threads_max)]:
            if not state.is_running and not state.is_finished:
                is_awaited = state is self._states[self._first] and not state.ready
                return state if has_room or is_awaited else None
        return None

    def _compute(self, state: _TaskState) -> None:
        """Compute one batch of a task that is marked as running. The lock is released while the batch is computed."""
        batch, error = None, None
        self._changed.release()
        try:
            if state.batches is None:
                state.batches = iter(self._read_task(state.task))
            batch = next(state.batches, None)
        except BaseException as problem:
            error = problem
        finally:
            self._changed.acquire()
        state.is_running = False
        state.error = error
        state.is_finished = batch is None
        if self._is_stopped:
            self._abandon(state)
        elif batch is not None:
            state.ready.append(batch)
            self._held_size += batch.nbytes
        self._changed.notify_all()

    def _abandon(self, state: _TaskState) -> None:
        """Mark a task that is not running as finished, and close its files."""
        state.is_finished = True
        close = getattr(state.batches, "close", None)
        state.batches = None
        if close is not None:
            close()
