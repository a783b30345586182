"""A process with limits answers until its work goes beyond them; the next question has another process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import pytest

from moldau.broker.runtime.environment import LocalEnvironment
from moldau.broker.runtime.limited_work import LimitedWorker, WorkProcessEnded
from moldau.broker.runtime.tasks import Tasks
from moldau.broker.runtime.work_reply import WorkerLimits
from moldau.storage.files.port import FileSystem

pytestmark = pytest.mark.processes
MEMORY = 256 << 20


def answers(fs: FileSystem) -> Generator[object, Callable[[], object], None]:
    answer: object = None
    while True:
        answer = (yield answer)()


def number(value: int) -> int:
    return value


def take_memory() -> int:
    return len(bytearray(2 * MEMORY))


def compute() -> None:
    while True:
        pass


def wait() -> None:
    signal.pause()


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def fail() -> None:
    raise ValueError("not so")


def run(story: Callable[[LimitedWorker], Awaitable[None]], *, wall_s: float = 600, waiting_max: int = 8) -> None:
    async def live() -> None:
        environment = LocalEnvironment(asyncio.get_running_loop())
        tasks = Tasks(lambda reason: None)
        limits = WorkerLimits(MEMORY, 1)
        work = LimitedWorker(
            environment, tasks.spawn, answers, limits, wall_s=wall_s, idle_s=60, waiting_max=waiting_max
        )
        await story(work)
        work.close()
        await tasks.stop()
        await asyncio.sleep(0.2)  # The event loop closes the pipes of processes that were killed.

    asyncio.run(live())


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (take_memory, "it took more memory than 256 MiB"),
        (compute, "it took more than 1 s of processor time"),
        (crash, "its process was ended by SIGSEGV"),
    ],
)
def test_what_goes_beyond_a_limit_ends_and_the_next_question_is_answered(
    question: Callable[[], object], sentence: str
) -> None:
    async def story(work: LimitedWorker) -> None:
        assert await work.ask(partial(number, 1), "anna") == 1
        with pytest.raises(WorkProcessEnded, match=sentence):
            await work.ask(question, "anna")
        assert await work.ask(partial(number, 2), "anna") == 2

    run(story)


def test_what_does_not_end_in_time_is_ended() -> None:
    async def story(work: LimitedWorker) -> None:
        with pytest.raises(WorkProcessEnded, match=r"it took longer than 1\.5 s"):
            await work.ask(wait, "anna")

    run(story, wall_s=1.5)


def test_an_error_of_the_work_is_raised_and_the_process_is_another_one() -> None:
    async def story(work: LimitedWorker) -> None:
        first = await work.ask(os.getpid, "anna")
        assert await work.ask(os.getpid, "anna") == first != os.getpid()
        with pytest.raises(ValueError, match="not so"):
            await work.ask(fail, "anna")
        assert await work.ask(os.getpid, "anna") not in (first, os.getpid())

    run(story)


def test_the_work_of_an_asker_that_left_ends_soon() -> None:
    async def story(work: LimitedWorker) -> None:
        await work.ask(os.getpid, "anna")
        left = asyncio.ensure_future(work.ask(wait, "anna"))
        await asyncio.sleep(0.1)
        left.cancel()
        async with asyncio.timeout(10):
            assert await work.ask(partial(number, 3), "boris") == 3

    run(story, wall_s=60)


def test_an_asker_has_one_question_in_the_queue_of_all() -> None:
    async def story(work: LimitedWorker) -> None:
        order: list[str] = []

        async def ask(name: str) -> None:
            await work.ask(partial(number, 1), name)
            order.append(name)

        await asyncio.gather(*(ask("anna") for _ in range(4)), ask("boris"))
        assert order.index("boris") == 1

    run(story)


def test_only_some_questions_wait() -> None:
    async def story(work: LimitedWorker) -> None:
        asked: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(work.ask(partial(number, 1), "anna")) for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(WorkProcessEnded, match="2 pieces of work wait already"):
            await work.ask(partial(number, 1), "boris")
        assert await asyncio.gather(*asked) == [1, 1]

    run(story, waiting_max=2)
