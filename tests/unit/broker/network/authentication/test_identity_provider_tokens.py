"""The token of this node is fetched before it is needed, and anew before it expires; failures leave the one it has."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from moldau.broker.config.oauthbearer import OauthLoginSettings, ProviderEndpoint
from moldau.broker.network.authentication.identity_provider import ProviderFailure, ProviderTokens
from moldau.broker.runtime.environment import Environment
from moldau.security.sasl.mechanism import LoginFailed
from moldau.security.sasl.oauthbearer.token import expiry_ms, unsecured_token
from moldau.testing.simulation.world import SimulatedEnvironment, World

SETTINGS = OauthLoginSettings(
    ProviderEndpoint("https://idp/token", 1000, 1000, 100, 10_000), "node", None, None, 0.8, 0.05, 60_000, 300_000
)
LIFE_MS = 3_600_000


def test_a_new_token_is_there_before_the_old_one_expires() -> None:
    with World(1) as world:
        done = asyncio.Event()

        async def serve(environment: SimulatedEnvironment) -> None:
            is_away = True
            asked = 0

            def fetch() -> str:
                nonlocal asked
                asked += 1
                if is_away:
                    raise ProviderFailure("it is away")
                return unsecured_token("node", environment.wall_ms(), LIFE_MS)

            tokens = ProviderTokens(SETTINGS, cast("Environment", environment), fetch)
            following = asyncio.ensure_future(tokens.follow())
            await asyncio.sleep(1)
            with pytest.raises(LoginFailed, match="it is away"):
                tokens.token()
            is_away = False
            await asyncio.sleep(10)
            first = tokens.token()
            asked = 0
            await asyncio.sleep(LIFE_MS / 1000 * 0.79)
            assert asked == 0
            is_away = True
            await asyncio.sleep(LIFE_MS / 1000 * 0.1)
            assert tokens.token() == first
            is_away = False
            await asyncio.sleep(20)
            assert expiry_ms(tokens.token()) > expiry_ms(first)
            following.cancel()
            done.set()

        world.add_host("node").boot(serve)
        world.run(done.wait(), limit_s=10_000)
