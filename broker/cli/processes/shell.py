"""Runs the processes that the supervisor decides on: starts and signals them, and reads their output.

Every node holds the reading end of a pipe to this process. If this process is killed, the pipe closes and the nodes
stop. A node announces that it serves by one line of JSON on its standard output (`--greeting json`).
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from moldau.broker.cli.processes.supervisor import (
    AnnounceServing,
    Effect,
    ExitCommand,
    PrintLine,
    RemoveDirectories,
    SignalProcess,
    StartProcess,
    Supervisor,
)

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOT_STARTED: Final = 1
"""The exit status that stands for a process that the system could not start."""
LINE_SIZE_MAX: Final = 1 << 16
"""The most bytes of a line of a node's log. A longer line is split."""
REPORT_SIZE_MAX: Final = 1 << 20
"""The most bytes of a node's greeting."""


class Output(Protocol):
    """Takes the lines of the nodes, and those of the command itself."""

    def write_own(self, text: str, *, is_problem: bool = False) -> None: ...

    def write_line(self, node_id: int, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Launch:
    """The command line, the environment and the input with which the process of a node is started."""

    arguments: Sequence[str]
    """The arguments of the Python interpreter."""
    variables: Mapping[str, str]
    input: bytes = b""
    """The bytes that the process gets first on its standard input."""


Report = Mapping[str, Any]
"""The greeting of a node. docs/start.md lists its fields."""


class Processes:
    """Runs the processes of one command. `run` may be called once."""

    def __init__(
        self,
        supervisor: Supervisor,
        launches: Mapping[int, Launch],
        output: Output,
        serving: Callable[[Mapping[int, Report]], None],
        left: Callable[[int], Coroutine[object, object, None]] | None = None,
    ) -> None:
        """`serving` is called once, with the greetings of all nodes, when every node serves. `left` runs when a node
        has left its cluster. It must not block, because nodes wait while their logs are not read.
        """
        self._supervisor = supervisor
        self._launches = launches
        self._output = output
        self._serving = serving
        self._left = left
        self._reports: dict[int, Report] = {}
        self._nodes: dict[int, Process | None] = {}
        """The process of each node; None while it is being started."""
        self._early: dict[int, signal.Signals] = {}
        """Signals to send to processes that are being started."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self, *, until_eof: bool = False) -> int:
        """Run the nodes until a signal stops them, or with `until_eof` until standard input ends. Returns the exit
        status.
        """
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._signalled)
        if until_eof:
            self._spawn(self._watch_input())
        self._tick()
        try:
            return await self._status
        finally:
            for task in self._tasks:
                task.cancel()

    # Events

    def _signalled(self) -> None:
        self._carry_out(self._supervisor.on_signal(now_ms()))

    def _tick(self) -> None:
        self._carry_out(self._supervisor.tick(now_ms()))

    async def _watch_input(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(LINE_SIZE_MAX):
            pass
        self._signalled()

    async def _live(self, node_id: int) -> None:
        """Run the process of a node, from its start to its end."""
        launch = self._launches[node_id]
        self._nodes[node_id] = None
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *launch.arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=REPORT_SIZE_MAX,
                env=dict(launch.variables),
                start_new_session=True,  # Ctrl-C is for this process alone, which stops the nodes in order.
            )
        except OSError as problem:
            self._output.write_own(f"node {node_id} cannot be started: {problem.strerror}", is_problem=True)
            status = NOT_STARTED
        else:
            self._nodes[node_id] = process
            if node_id in self._early:
                process.send_signal(self._early.pop(node_id))
            assert process.stdin is not None
            process.stdin.write(launch.input)
            await asyncio.gather(self._follow(node_id, process), self._await_greeting(node_id, process))
            status = await process.wait()
        self._early.pop(node_id, None)
        del self._nodes[node_id]
        self._carry_out(self._supervisor.on_ended(node_id, status, now_ms()))

    async def _await_greeting(self, node_id: int, process: Process) -> None:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if line:
            self._reports[node_id] = json.loads(line)
            self._carry_out(self._supervisor.on_serving(node_id, now_ms()))
        while await process.stdout.read(LINE_SIZE_MAX):
            pass

    async def _follow(self, node_id: int, process: Process) -> None:
        assert process.stderr is not None
        await copy_log(node_id, process.stderr, self._output)

    # Effects

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartProcess(node_id):
                    self._spawn(self._live(node_id))
                case SignalProcess(node_id, number):
                    self._signal(node_id, number)
                case PrintLine(text, is_problem):
                    self._output.write_own(text, is_problem=is_problem)
                case AnnounceServing():
                    self._serving(self._reports)
                case RemoveDirectories(node_id):
                    if self._left is not None:
                        self._spawn(self._left(node_id))
                case ExitCommand(status):
                    self._status.set_result(status)
        self._arm()

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self._nodes.get(node_id)
        if process is None:
            self._early[node_id] = number
        elif process.returncode is None:
            process.send_signal(number)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._supervisor.next_deadline_ms()
        if deadline_ms is not None and not self._status.done():
            delay_s = max(0, deadline_ms - now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self._status.done():
            self._status.set_exception(task.exception() or AssertionError("a task without a result"))


def now_ms() -> int:
    """The time (ms) of the running event loop's monotonic clock."""
    return int(asyncio.get_running_loop().time() * 1000)


async def copy_log(node_id: int, stream: asyncio.StreamReader, output: Output) -> None:
    """Copy the log of a node to `output`, line by line, until the node closes the stream."""
    rest = b""
    while chunk := await stream.read(LINE_SIZE_MAX):
        *lines, rest = (rest + chunk).split(b"\n")
        for each in lines:
            output.write_line(node_id, each.decode("utf-8", "replace"))
        if len(rest) >= LINE_SIZE_MAX:
            output.write_line(node_id, rest.decode("utf-8", "replace"))
            rest = b""
    if rest:
        output.write_line(node_id, rest.decode("utf-8", "replace"))
