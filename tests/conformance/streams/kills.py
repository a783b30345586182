"""Which brokers and instances are killed in which round of the input, the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.conformance.streams.inputs import EVENTS_PER_ROUND
from tests.conformance.trio import NODES

INSTANCES: Final = 2
DOWN_S: Final = (0.5, 4.0)
"""For so long a victim is away, at least and at most."""
ROUNDS: Final = ((False,), (True,), (False, True))
"""By turns: an instance, a broker, both in one round. True stands for a broker."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill -9 once an event of the round is written. An instance may lose its state directory."""

    is_broker: bool
    index: int
    at_event: int
    down_s: float
    loses_state: bool

    def __str__(self) -> str:
        lost = " and its state" if self.loses_state else ""
        return f"{'broker' if self.is_broker else 'instance'} {self.index + 1}{lost}"


def kills(seed: int, count: int) -> list[tuple[Kill, ...]]:
    """The kills of each round, so many in all."""
    chance = random.Random(seed)
    drawn: list[tuple[Kill, ...]] = []
    left = count
    while left:
        kinds = ROUNDS[len(drawn) % len(ROUNDS)][:left]
        drawn.append(tuple(_kill(chance, is_broker) for is_broker in kinds))
        left -= len(kinds)
    return drawn


def _kill(chance: random.Random, is_broker: bool) -> Kill:
    return Kill(
        is_broker,
        chance.randrange(NODES if is_broker else INSTANCES),
        chance.randrange(EVENTS_PER_ROUND // 8, EVENTS_PER_ROUND * 7 // 8),
        round(chance.uniform(*DOWN_S), 1),
        not is_broker and chance.random() < 0.4,
    )
