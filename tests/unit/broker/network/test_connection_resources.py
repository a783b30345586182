"""What the node's own log says of closed connections, and how much of it."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest

from moldau.broker.network.connection_resources import CLOSING_LINES_MAX, CLOSING_PERIOD_S
from tests.support.node import Node, serve_and

MANY = CLOSING_LINES_MAX + 30


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "moldau.connection"]


async def close_by_nonsense(node: Node, count: int) -> None:
    for _ in range(count):
        client = await node.connect()
        client.writer.write(struct.pack(">i", -1))
    await asyncio.sleep(CLOSING_PERIOD_S / 10)


def test_a_few_closings_are_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        await close_by_nonsense(node, 3)
        await asyncio.sleep(2 * CLOSING_PERIOD_S)
        assert len(lines(caplog)) == 3 and all("a request of -1 bytes" in each for each in lines(caplog))

    with caplog.at_level(logging.INFO, "moldau.connection"):
        serve_and(story)


def test_a_flood_of_closings_is_counted_instead_of_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        await close_by_nonsense(node, MANY)
        assert len(lines(caplog)) == CLOSING_LINES_MAX
        await asyncio.sleep(CLOSING_PERIOD_S)
        assert lines(caplog)[CLOSING_LINES_MAX:] == [
            f"{MANY - CLOSING_LINES_MAX} more connections were closed in the last second, not named one by one"
        ]
        await close_by_nonsense(node, 1)
        assert "a request of -1 bytes" in lines(caplog)[-1], "the next second has lines again"

    with caplog.at_level(logging.INFO, "moldau.connection"):
        serve_and(story)
