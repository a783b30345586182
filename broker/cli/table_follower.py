"""The process of `moldau follow-table`: runs the followers of the topics, handles signals, and serves metrics."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from contextlib import suppress
from functools import partial
from typing import Final

from moldau.broker.cli.invocation import Invocation
from moldau.broker.config.listeners import HttpAddress
from moldau.broker.http.server import HttpRequest, HttpResponse, HttpServer
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.broker.runtime.tasks import Tasks
from moldau.lake.followed_topics import FAILURES, FollowedTopics, Opened, topics_like
from moldau.lake.follower import Follower, FollowPorts, counted_rows
from moldau.lake.metrics import CONTENT_TYPE, metrics_text
from moldau.lake.opening import FollowChoices, LakePorts, catalog_of, open_follower
from moldau.lake.sink import LakeTable, SinkPorts

EXIT_STATUS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""The exit status after a signal that ended the command before its work was done."""


class TableFollower:
    """One run of `moldau follow-table`. The followers work on an executor thread, while the event loop handles signals
    and serves metrics.
    """

    def __init__(self, arguments: argparse.Namespace, choices: FollowChoices, invocation: Invocation) -> None:
        self._arguments = arguments
        self._choices = choices
        self._invocation = invocation
        self._names = [] if arguments.topic is None else arguments.topic.split(",")
        self._is_one = len(self._names) == 1
        self._stopping = asyncio.Event()
        self._signal: signal.Signals | None = None
        self._server: HttpServer | None = None
        self._unlisted: str | None = None
        """Why the last attempt to list the topics that match `--topic-pattern` failed; None if it succeeded."""

    async def run(self, address: HttpAddress | None) -> int:
        """Follow the topics until a signal, or once. Returns the exit status. If there is one topic, raises what
        `open_follower` and `catch_up` raise. Of several topics, each failure is printed instead.
        """
        loop = asyncio.get_running_loop()
        environment = LocalEnvironment(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        catalog = await asyncio.to_thread(catalog_of, self._choices)

        def opened(choices: FollowChoices) -> Opened:
            follower, table = open_follower(choices, self._ports(environment, choices.topic), catalog)
            self._say_opened(choices.topic, follower, table)
            return follower, table

        topics = FollowedTopics(self._choices, opened, self._say_failed, self._stopping.is_set, is_one=self._is_one)
        topics.add(self._names)
        if address is not None:
            await self._serve(address, topics, environment)
        try:
            await self._follow(topics, environment)
        finally:
            if self._server is not None:
                self._server.stop()
        if self._signal is not None and (self._arguments.once or self._signal != signal.SIGTERM):
            return EXIT_STATUS[self._signal]
        if self._arguments.once:
            await asyncio.to_thread(self._say_taken, topics)
        return int(topics.has_failed)

    async def _follow(self, topics: FollowedTopics, environment: LocalEnvironment) -> None:
        while not self._stopping.is_set():
            await asyncio.to_thread(self._turn, topics, environment)
            if self._arguments.once or (topics.is_over and self._arguments.topic_pattern is None):
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._arguments.interval)

    def _turn(self, topics: FollowedTopics, environment: LocalEnvironment) -> None:
        if self._arguments.topic_pattern is not None:
            self._list(topics, environment)
        topics.catch_up()

    def _list(self, topics: FollowedTopics, environment: LocalEnvironment) -> None:
        """Add the topics that match `--topic-pattern` now. If the places cannot be listed, this raises only at the
        start. Later the topics found so far are followed, and the failure is printed.
        """
        try:
            topics.add(topics_like(environment.fs, self._choices.options, self._arguments.topic_pattern))
            self._unlisted = None
        except FAILURES as problem:
            if not topics.topics:
                raise
            if str(problem) != self._unlisted:
                self._unlisted = str(problem)
                self._invocation.errors.say(f"moldau: no new topics are taken in: {problem}", "red")

    def _stop(self, number: signal.Signals) -> None:
        self._signal = number
        self._stopping.set()

    def _ports(self, environment: LocalEnvironment, topic: str) -> LakePorts:
        follow = FollowPorts(environment.wall_ms, partial(self._say_of, topic), self._stopping.is_set)
        return LakePorts(environment.fs, SinkPorts(environment.entropy, environment.wall_ms), follow, time.sleep)

    def _say(self, line: str) -> None:
        if self._arguments.progress:
            self._invocation.errors.say(line)

    def _say_of(self, topic: str, line: str) -> None:
        self._say(line if self._is_one else f"{topic}: {line}")

    def _say_failed(self, topic: str, problem: str) -> None:
        self._invocation.errors.say(f"moldau: {topic} is not followed: {problem}", "red")

    def _say_opened(self, topic: str, follower: Follower, table: LakeTable) -> None:
        progress = follower.progress
        begun = ", ".join(f"{each} at {offset:,}" for each, offset in sorted(progress.offsets.items()))
        swept = (
            f"; {progress.orphans_count} files of attempts that failed were deleted" if progress.orphans_count else ""
        )
        self._say(f"{table.name} follows {topic} from partition {begun or 'none yet'}{swept}")

    def _say_taken(self, topics: FollowedTopics) -> None:
        for each in topics.topics.values():
            if each.opened is not None:
                follower, table = each.opened
                rows = counted_rows(follower.progress.rows_count)
                self._invocation.out.say(f"{table.name} has all of {each.name}: {rows} added")
                self._invocation.out.say(table.metadata_location)

    async def _serve(self, address: HttpAddress, topics: FollowedTopics, environment: LocalEnvironment) -> None:
        async def metrics(_: HttpRequest) -> HttpResponse:
            return HttpResponse(200, CONTENT_TYPE, metrics_text(topics.measured(), environment.wall_ms()))

        tasks = Tasks(lambda reason: self._invocation.errors.say(f"moldau: {reason}", "red"))
        loop = asyncio.get_running_loop()
        self._server = HttpServer(loop, {"/metrics": {"GET": metrics}}, tasks.spawn)
        port = await self._server.start(address, "--metrics")
        self._say(f"metrics are at http://{address.host or '127.0.0.1'}:{port}/metrics")
