"""Work in a process of its own tells its events one by one, and ends with the broker that asked for it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from moldau.broker.runtime.environment import LocalEnvironment
from moldau.broker.runtime.worker import Work, WorkerDied
from moldau.broker.runtime.worker_process import AUTOGROUP, NICENESS
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.transaction_index import CorruptTransactionIndex

pytestmark = pytest.mark.processes


def count(fs: FileSystem, directory: str, steps: int) -> Iterator[tuple[int, int]]:
    """Make a file for each step, then tell the step and this process's id."""
    for step in range(steps):
        fs.open(f"{directory}/{step}", create=True).close()
        yield step, os.getpid()


def tell_priority(fs: FileSystem) -> Iterator[tuple[int, int, str]]:
    """Tell the session and the niceness of this process, and the line about the autogroup of its session."""
    told = Path(AUTOGROUP).read_text() if Path(AUTOGROUP).exists() else ""
    yield os.getsid(0), os.nice(0), told


def lack_space(fs: FileSystem) -> Iterator[int]:
    yield 1
    raise OSError(errno.ENOSPC, "No space left on device", "/x")


def find_damage(fs: FileSystem) -> Iterator[int]:
    yield 1
    raise MalformedMessage("a batch is cut short")


def find_damaged_index(fs: FileSystem) -> Iterator[int]:
    yield 1
    raise CorruptTransactionIndex("/x.txnindex", "an entry is cut short")


def yield_what_cannot_be_sent(fs: FileSystem) -> Iterator[object]:
    yield lambda: None


def fail_oddly(fs: FileSystem) -> Iterator[int]:
    yield 1
    raise Odd(1, 2)


def end_oneself(fs: FileSystem) -> Iterator[int]:
    yield 1
    os.kill(os.getpid(), signal.SIGKILL)
    yield 2


class Odd(Exception):
    """An error that does not come back from its pickle."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def test_events_come_one_by_one_from_another_process(tmp_path: Path) -> None:
    async def scenario() -> list[tuple[int, int]]:
        environment = LocalEnvironment(asyncio.get_running_loop())
        told = []
        work = environment.in_process(partial(count, directory=str(tmp_path), steps=3))
        while (event := await work.next_event()) is not None:
            told.append(event)
            assert len(list(tmp_path.iterdir())) == len(told), "the work went on before it was asked to"
        return told

    told = asyncio.run(scenario())
    assert [step for step, _ in told] == [0, 1, 2]
    assert os.getpid() not in {process for _, process in told}


def test_a_process_has_a_low_priority_and_a_session_of_its_own() -> None:
    async def scenario() -> tuple[int, int, str]:
        running = LocalEnvironment(asyncio.get_running_loop()).in_process(tell_priority)
        told = await running.next_event()
        assert told is not None
        assert await running.next_event() is None
        return told

    session, niceness, autogroup = asyncio.run(scenario())
    assert session != os.getsid(0)
    assert niceness == min(os.nice(0) + NICENESS, 19)
    if autogroup and os.geteuid() == 0:  # The kernel refuses other users a second change within 0.1 s.
        assert autogroup.endswith(f"nice {NICENESS}\n")


def test_the_work_is_cut_where_its_owner_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        environment = LocalEnvironment(asyncio.get_running_loop())
        work = environment.in_process(partial(count, directory=str(tmp_path), steps=1000))
        event = await work.next_event()
        assert event is not None
        work.close()
        for _ in range(500):
            with contextlib.suppress(ProcessLookupError):
                os.kill(event[1], 0)
                await asyncio.sleep(0.01)
                continue
            return
        raise AssertionError("the process still runs")

    asyncio.run(scenario())
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("work", "kind", "text"),
    [
        (lack_space, OSError, "No space left"),
        (find_damage, MalformedMessage, "a batch is cut short"),
        (find_damaged_index, CorruptTransactionIndex, "an entry is cut short"),
        (yield_what_cannot_be_sent, RuntimeError, "function: <function"),
        (fail_oddly, RuntimeError, "Odd: 1 and 2"),
    ],
)
def test_an_error_of_the_work_is_raised_here(work: Work[int], kind: type[Exception], text: str) -> None:
    async def scenario() -> None:
        running = LocalEnvironment(asyncio.get_running_loop()).in_process(work)
        while await running.next_event() is not None:
            pass

    with pytest.raises(kind, match=text) as raised:
        asyncio.run(scenario())
    assert not isinstance(raised.value, OSError) or raised.value.errno in (errno.ENOSPC, errno.EBADMSG)


def test_a_process_that_dies_is_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        running = LocalEnvironment(asyncio.get_running_loop()).in_process(end_oneself)
        while await running.next_event() is not None:
            pass

    with pytest.raises(WorkerDied, match="status -9"):
        asyncio.run(scenario())


def test_a_process_that_cannot_be_started_says_nothing_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        await LocalEnvironment(asyncio.get_running_loop()).in_process(end_oneself).next_event()

    with pytest.raises(WorkerDied, match="cannot be started") as raised:
        asyncio.run(scenario())
    assert raised.value.errno is None


def test_work_on_files_in_memory_runs_in_this_process() -> None:
    async def scenario() -> None:
        environment = LocalEnvironment(asyncio.get_running_loop(), in_memory=True)
        environment.fs.make_directories("/d")
        running = environment.in_process(partial(count, directory="/d", steps=3))
        assert await running.next_event() == (0, os.getpid())
        assert environment.fs.list_directory("/d") == ["0"]
        assert [await running.next_event() for _ in range(3)] == [(1, os.getpid()), (2, os.getpid()), None]
        failing = environment.in_process(lack_space)
        assert await failing.next_event() == 1
        with pytest.raises(OSError, match="No space left"):
            await failing.next_event()
        closed = environment.in_process(partial(count, directory="/d", steps=3))
        closed.close()
        assert await closed.next_event() is None
        environment.close()

    asyncio.run(scenario())
