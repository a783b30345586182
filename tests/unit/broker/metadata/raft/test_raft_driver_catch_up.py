"""A start that waits for the committed metadata ends once: with it, or with the reason why it cannot come."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.metadata.raft.raft_driver import CatchUpWait


def test_it_ends_when_it_is_reached() -> None:
    async def story() -> None:
        catch_up = CatchUpWait(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(catch_up.succeed)
        await catch_up.wait(lambda: "no leader is known")
        catch_up.succeed()
        assert catch_up.is_over

    asyncio.run(story())


def test_it_raises_what_makes_it_impossible() -> None:
    async def story() -> None:
        catch_up = CatchUpWait(asyncio.get_running_loop())
        catch_up.fail(OSError("the disk is full"))
        catch_up.succeed()
        with pytest.raises(OSError, match="full"):
            await catch_up.wait(lambda: "no leader is known")

    asyncio.run(story())
