"""The process of `moldau follow-table`: the follower, the signals that end it, and its metrics."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from contextlib import suppress
from typing import Final

from moldau.broker.cli.invocation import Invocation
from moldau.broker.config.listeners import HttpAddress
from moldau.broker.http.server import Answer, HttpRequest, HttpServer
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.broker.runtime.tasks import Tasks
from moldau.lake.follower import Follower, FollowPorts, counted_rows
from moldau.lake.metrics import CONTENT_TYPE, metrics_text
from moldau.lake.opening import FollowChoices, LakePorts, open_follower
from moldau.lake.sink import LakeTable, SinkPorts

EXIT_STATUS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""The exit status after a signal that ended the command before it had done what was asked."""


class TableFollower:
    """One run of the command. The follower works on an executor thread; signals and metrics are served meanwhile."""

    def __init__(self, arguments: argparse.Namespace, choices: FollowChoices, invocation: Invocation) -> None:
        self._arguments = arguments
        self._choices = choices
        self._invocation = invocation
        self._stopping = asyncio.Event()
        self._signal: signal.Signals | None = None
        self._server: HttpServer | None = None

    async def run(self, address: HttpAddress | None) -> int:
        """Follow until a signal, or once. Returns the exit status. Raises as `open_follower` and `catch_up`."""
        loop = asyncio.get_running_loop()
        environment = LocalEnvironment(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        follower, table = await asyncio.to_thread(open_follower, self._choices, self._ports(environment))
        self._say_opened(follower, table)
        if address is not None:
            await self._serve(address, follower, table, environment)
        try:
            await self._follow(follower)
        finally:
            if self._server is not None:
                self._server.stop()
        if self._signal is not None:
            return 0 if self._signal == signal.SIGTERM and not self._arguments.once else EXIT_STATUS[self._signal]
        if self._arguments.once:
            place = await asyncio.to_thread(lambda: table.metadata_location)
            rows = counted_rows(follower.progress.rows_count)
            self._invocation.out.say(f"{table.name} has all of {self._arguments.topic}: {rows} added")
            self._invocation.out.say(place)
        return 0

    async def _follow(self, follower: Follower) -> None:
        while not self._stopping.is_set():
            await asyncio.to_thread(follower.catch_up)
            if self._arguments.once:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._arguments.interval)

    def _stop(self, number: signal.Signals) -> None:
        self._signal = number
        self._stopping.set()

    def _ports(self, environment: LocalEnvironment) -> LakePorts:
        follow = FollowPorts(environment.wall_ms, self._say, self._stopping.is_set)
        return LakePorts(environment.fs, SinkPorts(environment.entropy, environment.wall_ms), follow, time.sleep)

    def _say(self, line: str) -> None:
        if self._arguments.progress:
            self._invocation.errors.say(line)

    def _say_opened(self, follower: Follower, table: LakeTable) -> None:
        progress = follower.progress
        begun = ", ".join(f"{each} at {offset:,}" for each, offset in sorted(progress.offsets.items()))
        swept = (
            f"; {progress.orphans_count} files of attempts that failed were deleted" if progress.orphans_count else ""
        )
        self._say(f"{table.name} follows {self._arguments.topic} from partition {begun or 'none yet'}{swept}")

    async def _serve(
        self, address: HttpAddress, follower: Follower, table: LakeTable, environment: LocalEnvironment
    ) -> None:
        async def metrics(_: HttpRequest) -> Answer:
            text = metrics_text(follower.progress, table.name, self._arguments.topic, environment.wall_ms())
            return Answer(200, CONTENT_TYPE, text)

        tasks = Tasks(lambda reason: self._invocation.errors.say(f"moldau: {reason}", "red"))
        loop = asyncio.get_running_loop()
        self._server = HttpServer(loop, {"/metrics": {"GET": metrics}}, tasks.spawn)
        port = await self._server.start(address, "--metrics")
        self._say(f"metrics are at http://{address.host or '127.0.0.1'}:{port}/metrics")
