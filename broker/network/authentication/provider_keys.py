"""The keys of an identity provider: fetched at the start, at intervals, and when a token names an unknown key.

    every refresh interval          the keys are fetched again; after each failure the backoff doubles, up to its limit
    a token names an unknown key    one fetch for all waiting clients, at most one in `LOOK_MS_MIN`

After a failed fetch the known keys stay in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from moldau.broker.config.oauthbearer import Fetching
from moldau.broker.network.authentication.provider_requests import ProviderFailure, ask_provider
from moldau.broker.runtime.environment import Environment
from moldau.security.sasl.oauthbearer.keys import InvalidKeys, KeySet, parse_key_set

log = logging.getLogger("moldau.listener")

LOOK_MS_MIN: Final = 1_000
"""The least time (ms) from the end of a fetch to a fetch because of an unknown key: clients choose the ids of keys in
their tokens, and must not make this node ask the provider all the time.
"""

Ask = Callable[[Fetching], bytes]


class ProviderKeys:
    """The keys of one provider. `follow` runs as long as the node; `keys` is the current set, empty before the first
    fetch.
    """

    def __init__(self, fetching: Fetching, refresh_ms: int, environment: Environment, ask: Ask | None = None) -> None:
        """`ask` fetches the provider's key set as text; it blocks, so it is called on an executor thread."""
        self.keys = KeySet()
        self._fetching = fetching
        self._refresh_ms = refresh_ms
        self._environment = environment
        self._ask = (lambda each: ask_provider(each, environment)) if ask is None else ask
        self._fetched_ms: int | None = None
        self._problem: str | None = None
        self._running: asyncio.Future[None] | None = None

    async def follow(self) -> None:
        """Fetch the keys now and at every refresh interval, until the task is cancelled."""
        fetching = self._fetching
        pause_ms = fetching.backoff_ms
        while True:
            await self._fetch()
            if self._problem is None:
                pause_ms = fetching.backoff_ms
                await asyncio.sleep(self._refresh_ms / 1000)
            else:
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, fetching.backoff_ms_max)

    async def look_up(self, what: object) -> KeySet:
        """The keys after a new fetch; the known keys where the last fetch ended less than `LOOK_MS_MIN` ago."""
        now_ms = self._environment.monotonic_ms()
        if self._running is not None or self._fetched_ms is None or now_ms - self._fetched_ms >= LOOK_MS_MIN:
            await self._fetch()
        return self.keys

    async def _fetch(self) -> None:
        """Fetch the keys. Callers that arrive during a fetch wait for its end."""
        if self._running is not None:
            await asyncio.shield(self._running)
            return
        self._running = asyncio.get_running_loop().create_future()
        try:
            await self._fetch_once()
        finally:
            running, self._running = self._running, None
            running.set_result(None)

    async def _fetch_once(self) -> None:
        try:
            self.keys = await self._environment.offload(lambda: parse_key_set(self._ask(self._fetching)))
            problem = None
        except (ProviderFailure, InvalidKeys) as failure:
            problem = f"the keys of the identity provider stay as they are: {failure}"
        if problem is not None and problem != self._problem:
            log.warning("%s", problem)
        elif problem is None and (self._problem is not None or self._fetched_ms is None):
            log.info("%d keys of the identity provider were read from %s", len(self.keys.keys), self._fetching.url)
        self._problem = problem
        self._fetched_ms = self._environment.monotonic_ms()
