"""The steps of the event loop, on the loop of a node: its callbacks, its timers and its tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial

import pytest

from moldau.broker.node.main import TimedLoop
from moldau.broker.runtime.loop_steps import NO_STEP, LoopSteps, callback_name
from moldau.broker.runtime.tasks import Tasks


class Clock:
    """Passes only if a step says so."""

    def __init__(self) -> None:
        self.now_ns = 0

    def read(self) -> int:
        return self.now_ns

    def hold_ms(self, time_ms: int) -> None:
        self.now_ns += time_ms * 1_000_000


def longest_of(run: Coroutine[object, object, None], clock: Clock) -> tuple[float, str]:
    loop = TimedLoop(clock.read)
    try:
        loop.run_until_complete(run)
    finally:
        loop.close()
    return loop.steps.longest.held_ns / 1e6, loop.steps.longest.name


def test_a_callback_and_a_timer_are_named_by_their_function() -> None:
    clock = Clock()

    async def soon() -> None:
        asyncio.get_running_loop().call_soon(partial(clock.hold_ms, 30))
        asyncio.get_running_loop().call_soon(clock.hold_ms, 20)
        await asyncio.sleep(0.001)

    async def later() -> None:
        asyncio.get_running_loop().call_later(0.001, clock.hold_ms, 40)
        asyncio.get_running_loop().call_at(asyncio.get_running_loop().time() + 0.001, clock.hold_ms, 35)
        await asyncio.sleep(0.01)

    for story, held_ms in ((soon, 30), (later, 40)):
        held, name = longest_of(story(), clock)
        assert (held, name.endswith("test_loop_steps.Clock.hold_ms")) == (held_ms, True)


def test_a_step_of_a_task_has_the_name_of_the_task() -> None:
    clock = Clock()

    async def work() -> None:
        await asyncio.sleep(0)
        clock.hold_ms(50)
        await asyncio.sleep(0)

    async def story() -> None:
        tasks = Tasks(lambda reason: pytest.fail(reason))
        await tasks.spawn(work(), "the log cleaner")

    assert longest_of(story(), clock) == (50, "task the log cleaner")


def test_an_error_of_a_callback_reaches_the_loop() -> None:
    errors: list[object] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        loop.call_soon([].pop)
        await asyncio.sleep(0.001)

    longest_of(story(), Clock())
    assert [type(each) for each in errors] == [IndexError]


def test_a_long_step_is_logged_once_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    steps = LoopSteps()
    steps.note_step(49_000_000, lambda: "short")
    with caplog.at_level(logging.WARNING):
        steps.log_longest()
        assert caplog.messages == [] and steps.last.name == "short"
        steps.note_step(312_000_000, lambda: 'the "long" one')
        steps.note_step(100_000_000, lambda: "another")
        steps.log_longest()
        steps.log_longest()
    assert caplog.messages == ['longest_step held_ms=312.0 step="the \\"long\\" one"']
    assert steps.last == steps.longest == NO_STEP


def test_anything_that_can_be_called_has_a_name() -> None:
    assert callback_name([].append) == "builtins.list.append"
    assert callback_name(partial(len)) == "builtins.len"


def test_what_the_start_held_is_told_to_developers_and_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    steps = LoopSteps()
    steps.note_step(200_000_000, lambda: "task the start of the node")
    with caplog.at_level(logging.DEBUG, "moldau.slow"):
        steps.end_start()
        steps.log_longest()
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.DEBUG, "the start held the event loop for 200 ms at most, in task the start of the node")
    ]
    assert steps.last == steps.longest == NO_STEP
