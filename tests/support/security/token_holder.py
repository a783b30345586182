"""A user that creates, renews and ends delegation tokens in a simulated cluster: no token outlives its maximum.

The controller may answer late or not at all. What is checked is what it promises: the times in its responses, and that
a token that was ended is gone from the metadata.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.security.sasl.scram.credential import ScramMechanism
from moldau.security.sasl.scram.exchange import ScramLogin
from tests.support.cluster_clients import Bootstrap, NotAsked, Told, believed
from tests.support.node import Closed

LIFE_MS_MAX: Final = 4000
"""`delegation.token.max.lifetime.ms` of simulated clusters."""
LIFE_MS: Final = 2000
"""`delegation.token.expiry.time.ms`: a token that is not renewed ends so soon."""
SWEEP_MS: Final = 1000
"""`delegation.token.expiry.check.interval.ms`."""
KEPT: Final = 4
"""Tokens that the user still uses, the last ones."""
PAUSE_S: Final = 1.2
TOKEN_PROPERTIES: Final = {
    "delegation.token.secret.key": "key of the cluster",
    "delegation.token.max.lifetime.ms": str(LIFE_MS_MAX),
    "delegation.token.expiry.time.ms": str(LIFE_MS),
    "delegation.token.expiry.check.interval.ms": str(SWEEP_MS),
}


class Asker(Protocol):
    """The way in which a user that has authenticated reaches the controller."""

    async def ask_any(self, request: object, version: int) -> Any:
        """Raises `NotAsked`, or `Closed` if the request may have been carried out."""


class HeldToken(NamedTuple):
    """A token, as the controller described it when it created it."""

    id: str
    hmac: bytes
    max_at_ms: int
    login: ScramLogin


class TokenHolder:
    def __init__(
        self,
        asker: Asker,
        bootstrap: Bootstrap,
        complaints: list[str],
        *,
        told: Told = believed,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`bootstrap`: the source of chance, and the process that `told` looks at."""
        self._asker = asker
        self._bootstrap = bootstrap
        self._complaints = complaints
        self._told = told
        self._pause_s = pause_s
        self.tokens: list[HeldToken] = []
        """The last ones, of which some have ended."""
        self.count = 0
        """Tokens that were created."""

    async def work(self, is_ended: Callable[[], bool]) -> None:
        random = self._bootstrap.random
        while not is_ended():
            try:
                if not self.tokens or random.random() < 0.3:
                    await self._create(random)
                elif random.random() < 0.7:
                    await self._renew(random)
                else:
                    await self._expire(random)
            except NotAsked:
                await self._bootstrap.back_off()
            except Closed:
                await self._bootstrap.back_off()
            await asyncio.sleep(random.random() * self._pause_s)

    async def _create(self, random: Random) -> None:
        life_ms = random.choice((-1, 1500, 3000, 2 * LIFE_MS_MAX))
        reply = await self._asker.ask_any(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=life_ms), 3)
        if reply.error_code != ErrorCode.NONE:
            return
        self.count += 1
        issued_ms, max_ms = reply.issue_timestamp_ms, reply.max_timestamp_ms
        allowed_ms = min(LIFE_MS_MAX, life_ms) if life_ms > 0 else LIFE_MS_MAX
        if max_ms - issued_ms > allowed_ms:
            self._complaints.append(f"token {reply.token_id} may live for {max_ms - issued_ms} ms of {allowed_ms}")
        password = b64encode(reply.hmac).decode()
        login = ScramLogin(ScramMechanism.SCRAM_SHA_256, reply.token_id, password)
        token = HeldToken(reply.token_id, bytes(reply.hmac), max_ms, login)
        self._expect_end(token, reply.expiry_timestamp_ms)
        self.tokens = [*self.tokens[1 - KEPT :], token]

    async def _renew(self, random: Random) -> None:
        token = random.choice(self.tokens)
        period_ms = random.choice((-1, 500, LIFE_MS_MAX, 2 * LIFE_MS_MAX))
        reply = await self._asker.ask_any(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms), 2)
        if reply.error_code == ErrorCode.NONE:
            self._expect_end(token, reply.expiry_timestamp_ms)

    async def _expire(self, random: Random) -> None:
        token = random.choice(self.tokens)
        period_ms = random.choice((-1, 300, 2 * LIFE_MS_MAX))
        request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
        reply = await self._asker.ask_any(request, 2)
        if reply.error_code != ErrorCode.NONE:
            return
        if period_ms >= 0:
            self._expect_end(token, reply.expiry_timestamp_ms)
        else:
            self._told(self._bootstrap, f"the end of {token.id}", lambda image: token.id not in image.tokens.by_id)

    def _expect_end(self, token: HeldToken, expires_at_ms: int) -> None:
        if expires_at_ms > token.max_at_ms:
            beyond_ms = expires_at_ms - token.max_at_ms
            self._complaints.append(f"token {token.id} is to outlive its maximum by {beyond_ms} ms")
