"""Clients that log in to one broker, ask, authenticate again, and stop doing so; their sessions end after a while.

Each client knows when its session ends, by the response to its last login. Until then it is served; a while later it is
not, whatever it did before. It may authenticate again before the end and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Any, Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.security.sasl.scram.credential import ScramMechanism
from moldau.security.sasl.scram.exchange import ScramLogin
from tests.simulation.cluster.secured import credentials, password_of
from tests.simulation.invariants.observation import Violation
from tests.support.cluster import LOGIN_PORT, Cluster
from tests.support.node import Client, Closed
from tests.support.scram_login import log_in_as
from tests.support.security.acl_administrator import USERS

NODE: Final = 1
CLIENTS: Final = 6
LIVES: Final = 3
"""Connections of each client."""
SESSIONS_MS: Final = (1500, 3000)
RENEWAL_S: Final = 1.05
"""A broker refuses a renewal that comes sooner after the one before."""
SLACK_S: Final = 0.05
"""A broker counts the session from a moment between a client's request and its response."""
AGAIN_SHARE: Final = 0.6
"""How often a client authenticates again."""
AFTER_END_SHARE: Final = 0.3
"""How often it does so after the end of its session."""
AT_END_SHARE: Final = 0.2
"""How often, of the other times, it begins just before the end, and pauses beyond it."""


class Session:
    """One connection of a client that has authenticated."""

    def __init__(self, cluster: Cluster, random: Random, user: str, client: Client, limit_ms: int) -> None:
        self.renewals = self.ends = 0
        self._cluster = cluster
        self._random = random
        self._login = ScramLogin(ScramMechanism.SCRAM_SHA_256, user, password_of(user))
        self._client = client
        self._limit_ms = limit_ms
        self._begins_s = 0.0
        self._renewed_s = -RENEWAL_S
        self._end_s = 0.0
        """When the session ends at the earliest."""

    async def work(self) -> None:
        """Log in, live through some sessions, and outlive the last one."""
        await self._authenticate()
        while self._random.random() < AGAIN_SHARE:
            pause_s = 0.0
            is_late = self._random.random() < AFTER_END_SHARE
            if not is_late and self._random.random() < AT_END_SHARE:
                pause_s = 3 * SLACK_S
                await self._ask_until(self._end_s - 0.5)
                await self._sleep_until(self._end_s - SLACK_S)
            else:
                await self._ask_until(self._end_s + self._random.random() if is_late else self._within())
            if is_late:
                await self._sleep_until(self._end_s + SLACK_S)
            await self._sleep_until(self._renewed_s + RENEWAL_S)
            self._renewed_s = self._now_s + pause_s
            await self._authenticate(pause_s)
            self.renewals += 1
        await self._ask_until(self._end_s)
        await self._sleep_until(self._end_s + SLACK_S + self._random.random() * self._limit_ms / 500)
        answer = await self._answer(self._client.ask(MetadataRequest(topics=[]), 9))
        if answer is not None:
            late_ms = round(1000 * (self._now_s - self._end_s))
            raise Violation(f"a client is served {late_ms} ms after its session of {self._limit_ms} ms")
        self.ends += 1

    @property
    def _now_s(self) -> float:
        return self._cluster.world.now_s

    def _within(self) -> float:
        return self._begins_s + self._random.random() * 0.9 * (self._end_s - self._begins_s)

    async def _authenticate(self, pause_s: float = 0.0) -> None:
        self._begins_s = self._now_s + pause_s
        reply = await self._answer(log_in_as(self._client, self._login, self._random, pause_s=pause_s))
        if reply is None or reply.error_code != ErrorCode.NONE:
            raise Violation(f"a client cannot authenticate: {reply}")
        if reply.session_lifetime_ms != self._limit_ms:
            raise Violation(f"a session of {reply.session_lifetime_ms} ms, and {self._limit_ms} ms is the limit")
        self._end_s = self._begins_s + reply.session_lifetime_ms / 1000

    async def _ask_until(self, until_s: float) -> None:
        """Ask now and then until a time, or until shortly before the end of the session: all that is answered."""
        while True:
            await asyncio.sleep(self._random.random() * 0.4)
            if self._now_s > min(until_s, self._end_s - SLACK_S):
                return
            if await self._answer(self._client.ask(MetadataRequest(topics=[]), 9)) is None:
                left_ms = round(1000 * (self._end_s - self._now_s))
                raise Violation(f"a client is not served {left_ms} ms before the end of its session")

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._now_s))

    @staticmethod
    async def _answer(asking: Awaitable[Any]) -> Any:
        """The response; None if the broker closes the connection."""
        try:
            return await asyncio.wait_for(asking, 2)
        except Closed:
            return None


async def live_as_client(cluster: Cluster, random: Random, limit_ms: int, counts: dict[str, int]) -> None:
    for _ in range(LIVES):
        client = await cluster.connect(NODE, LOGIN_PORT)
        session = Session(cluster, random, random.choice(USERS), client, limit_ms)
        try:
            await session.work()
        finally:
            client.close()
        counts["renewals"] += session.renewals
        counts["ends"] += session.ends


def run_seed(seed: int) -> dict[str, int]:
    """How many sessions were renewed, and ended. Raises `Violation`."""
    limit_ms = Random(f"{seed}/sessions").choice(SESSIONS_MS)
    counts = {"renewals": 0, "ends": 0}

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        clients = [
            live_as_client(cluster, Random(f"{seed}/client {number}"), limit_ms, counts) for number in range(CLIENTS)
        ]
        await asyncio.gather(*clients)

    properties: dict[str, Any] = {"connections.max.reauth.ms": limit_ms}
    with Cluster(seed, nodes=1, credentials=credentials(), has_logins=True, **properties) as cluster:
        cluster.live(story)
    return counts
