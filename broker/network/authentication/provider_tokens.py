"""The token with which this node logs in to other nodes: fetched from the identity provider, and replaced before it
expires.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from moldau.broker.config.oauthbearer import OauthLoginSettings
from moldau.broker.network.authentication.provider_requests import ProviderFailure
from moldau.broker.runtime.environment import Environment
from moldau.security.sasl.client_mechanism import LoginFailed
from moldau.security.sasl.oauthbearer.token import InvalidToken, expiry_ms

log = logging.getLogger("moldau.listener")

UNKNOWN_LIFE_MS: Final = 300_000
"""Life of a token that this node cannot read: it is fetched again within that time."""


class ProviderTokens:
    """The current token. `follow` runs as long as the node; `token` raises `LoginFailed` before the first token has
    arrived.
    """

    def __init__(self, settings: OauthLoginSettings, environment: Environment, fetch: Callable[[], str]) -> None:
        """`fetch`: asks the provider for a token; it blocks, and raises `ProviderFailure` or `LoginFailed`."""
        self._settings = settings
        self._environment = environment
        self._fetch = fetch
        self._token: str | None = None
        self._problem = "the identity provider has not answered yet"

    def token(self) -> str:
        if self._token is None:
            raise LoginFailed(self._problem)
        return self._token

    async def follow(self) -> None:
        """Fetch a token, and the next one before it expires."""
        fetching = self._settings.tokens
        assert fetching is not None, "without an endpoint there is nothing to follow"
        pause_ms = fetching.backoff_ms
        while True:
            try:
                self._token = await self._environment.offload(self._fetch)
            except (ProviderFailure, LoginFailed) as failure:
                if str(failure) != self._problem:
                    log.warning("this node has no new token to log in with: %s", failure)
                self._problem = str(failure)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, fetching.backoff_ms_max)
                continue
            self._problem, pause_ms = "", fetching.backoff_ms
            await asyncio.sleep(self._next_ms(self._token) / 1000)

    def _next_ms(self, token: str) -> int:
        """The time (ms) of the next fetch: after a fraction of the token's lifetime and, if the lifetime is long
        enough, before its last minutes. There is always a minimum pause between two fetches.
        """
        settings, now_ms = self._settings, self._environment.wall_ms()
        try:
            life_ms = expiry_ms(token) - now_ms
        except InvalidToken:
            life_ms = UNKNOWN_LIFE_MS
        part = settings.refresh_factor + settings.refresh_jitter * self._environment.random.random()
        wanted_ms = int(life_ms * part)
        if life_ms > settings.refresh_ms_min + settings.refresh_buffer_ms:
            wanted_ms = max(settings.refresh_ms_min, min(wanted_ms, life_ms - settings.refresh_buffer_ms))
        return max(wanted_ms, settings.tokens.backoff_ms if settings.tokens is not None else 0, 1_000)
