"""The keys of an identity provider: kept over failures, fetched for unknown keys, and not as often as clients wish."""

from __future__ import annotations

import asyncio
from typing import cast

from moldau.broker.config.oauthbearer import ProviderEndpoint
from moldau.broker.network.authentication.identity_provider import LOOKUP_MS_MIN, ProviderFailure, ProviderKeys
from moldau.broker.runtime.environment import Environment
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.identity_provider import IdentityProvider


class Provider:
    """What is asked, and how often."""

    def __init__(self) -> None:
        self.document: bytes | None = IdentityProvider().key_set()
        self.asked = 0

    def __call__(self, endpoint: ProviderEndpoint) -> bytes:
        self.asked += 1
        if self.document is None:
            raise ProviderFailure("it is away")
        return self.document


def live(story: object, refresh_ms: int = 60_000) -> None:
    with World(1) as world:
        host = world.add_host("node")

        async def serve(environment: SimulatedEnvironment) -> None:
            provider = Provider()
            endpoint = ProviderEndpoint("https://idp/keys", 1000, 1000, 100, 10_000)
            keys = ProviderKeys(endpoint, refresh_ms, cast("Environment", environment), provider)
            following = asyncio.ensure_future(keys.follow())
            await story(keys, provider)  # type: ignore[operator]
            following.cancel()
            done.set()

        done = asyncio.Event()
        host.boot(serve)
        world.run(done.wait(), limit_s=600)


def test_keys_are_fetched_at_the_start_and_at_intervals_and_survive_failures() -> None:
    async def story(keys: ProviderKeys, provider: Provider) -> None:
        await asyncio.sleep(1)
        known = keys.keys
        assert (provider.asked, len(known.keys)) == (1, 2)
        provider.document = None
        await asyncio.sleep(60)
        assert keys.keys is known
        assert provider.asked > 2
        provider.document = b'{"keys": []}'
        await asyncio.sleep(11)
        assert keys.keys.keys == ()
        asked = provider.asked
        await asyncio.sleep(40)
        assert provider.asked == asked

    live(story)


def test_all_clients_with_unknown_keys_share_few_requests_to_the_provider() -> None:
    async def story(keys: ProviderKeys, provider: Provider) -> None:
        await asyncio.sleep(LOOKUP_MS_MIN / 1000 + 1)
        found = await asyncio.gather(*(keys.look_up(None) for _ in range(100)))
        assert provider.asked == 2
        assert all(each is keys.keys for each in found)
        await asyncio.gather(*(keys.look_up(None) for _ in range(100)))
        assert provider.asked == 2

    live(story)
