"""Hostile bytes at a whole broker in the simulator: an answer or a close, never a handler that fails."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter

import pytest

from tests.fuzz.inputs import InputMaker
from tests.fuzz.requests import RequestMaker, Surroundings
from tests.support.node import Client, Node, batch, serve_and

INPUTS = 1500
SEEDS = [int(seed) for seed in os.environ.get("FUZZ_SEEDS", "1").split(",")]
"""More of them by hand: FUZZ_SEEDS=2,3,4."""
FAILURES = ("moldau.connection", "asyncio", "moldau.background")


class Failures(logging.Handler):
    """Keeps what is said of bugs, each with the input that was being sent."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.current = b""
        self.found: list[tuple[str, bytes]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.found.append((logging.Formatter().formatException(record.exc_info), self.current))


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_is_sent_makes_a_handler_fail(failures: Failures, seed: int) -> None:
    outcomes: Counter[str] = Counter()

    async def story(node: Node) -> None:
        client = await node.connect()
        names = Surroundings()
        names.topic_ids = tuple([await client.create(name, partitions=2) for name in names.topics])
        await client.create("honest")
        chance = random.Random(seed)
        maker = InputMaker(chance, RequestMaker(chance, names))
        attacker = None
        for _ in range(INPUTS):
            each = maker.draw()
            failures.current = each.data
            attacker = attacker or await node.connect()
            outcome = await send(attacker, each.data)
            outcomes[outcome] += 1
            if outcome != "answered":
                attacker.close()
                attacker = None
        assert (await client.produce("honest", batch("still here"))).error_code == 0
        (kept,) = [await client.fetch("honest")]
        assert kept.high_watermark == 1

    logging.getLogger().addHandler(failures)
    try:
        serve_and(story, seed=seed, auto_create_topics_enable="false")
    finally:
        logging.getLogger().removeHandler(failures)
    for text, data in failures.found:
        print(text, data[:400].hex(), sep="\n")
    assert not failures.found
    assert outcomes["answered"] > INPUTS // 10
    assert outcomes["closed"] > INPUTS // 10


async def send(client: Client, data: bytes) -> str:
    """What came of it within a moment."""
    client.writer.write(data)
    try:
        async with asyncio.timeout(0.02):
            size = int.from_bytes(await client.reader.readexactly(4), "big")
            await client.reader.readexactly(size)
            return "answered"
    except TimeoutError:
        return "waiting"
    except (asyncio.IncompleteReadError, OSError):
        return "closed"
