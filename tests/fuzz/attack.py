"""Many connections that send hostile input, one at a time each, and count what comes of it. A process of its own.

With `--harmless` they connect, ask and hang up as often as hostile ones do, and ask for nothing but the versions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections import Counter

from tests.fuzz import batches
from tests.fuzz.inputs import Input, InputMaker, framed
from tests.fuzz.requests import RequestMaker, Surroundings

PATIENCE_S = 0.1
"""How long an answer is awaited; a request that parks, and half a frame, are left behind then."""
PATIENCE_OF_PARTIAL_S = 0.01
PATIENCE_OF_LARGE_S = 60.0
LARGE_SIZE = 100_000
HARMLESS = Input("harmless", framed(bytes([0, 18, 0, 0, 0, 0, 0, 1, 255, 255])))
HANG_UPS_SHARE = 0.65
"""About so many hostile inputs end their connections."""


class Attack:
    """Shares out a number of inputs among connections."""

    def __init__(
        self, host: str, port: int, inputs: int, seed: int, rate: float, names: Surroundings, *, is_harmless: bool
    ) -> None:
        self.is_harmless = is_harmless
        self.host = host
        self.port = port
        self.left = inputs
        self.seed = seed
        self.interval_s = 1 / rate if rate else 0.0
        self.names = names
        self.started = 0.0
        self.sent = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()

    async def run(self, connections: int) -> None:
        batches.bombs()
        self.started = time.monotonic()
        await asyncio.gather(*(self.attacker(number) for number in range(connections)))

    async def attacker(self, number: int) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        maker = InputMaker(chance, RequestMaker(chance, self.names))
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while self.left > 0:
            self.left -= 1
            self.sent += 1
            ahead_s = self.started + self.sent * self.interval_s - time.monotonic()
            if self.interval_s and ahead_s > 0:
                await asyncio.sleep(ahead_s)
            each = HARMLESS if self.is_harmless else maker.draw()
            try:
                connection = connection or await asyncio.open_connection(self.host, self.port)
            except OSError:
                self.outcomes[each.kind, "no connection"] += 1
                await asyncio.sleep(0.1)
                continue
            patience_s = PATIENCE_OF_PARTIAL_S if each.is_partial else PATIENCE_S
            if len(each.data) > LARGE_SIZE:
                patience_s = PATIENCE_OF_LARGE_S
            outcome = await send(*connection, each.data, patience_s)
            self.outcomes[each.kind, outcome] += 1
            if outcome != "answered" or (self.is_harmless and chance.random() < HANG_UPS_SHARE):
                connection[1].transport.abort()
                connection = None


async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, patience_s: float) -> str:
    writer.write(data)
    try:
        async with asyncio.timeout(patience_s):
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
            return "answered"
    except TimeoutError:
        return "waiting"
    except (asyncio.IncompleteReadError, OSError):
        return "closed"


def main() -> None:
    """The outcomes as JSON lines at the end: kind, outcome, count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("inputs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--harmless", action="store_true")
    parser.add_argument("--topic-ids", nargs="*", default=[])
    given = parser.parse_args()
    names = Surroundings(topic_ids=tuple(bytes.fromhex(each) for each in given.topic_ids))
    attack = Attack(given.host, given.port, given.inputs, given.seed, given.rate, names, is_harmless=given.harmless)
    import uvloop

    # As if on another machine: a niced process too holds its core for milliseconds while the broker wants it.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    uvloop.run(attack.run(given.connections))
    print(json.dumps([[kind, outcome, count] for (kind, outcome), count in sorted(attack.outcomes.items())]))


if __name__ == "__main__":
    main()
