"""The input of the shop: rounds of clicks, purchases and users' regions, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

CLICKS, PURCHASES, USERS = "clicks", "purchases", "users"
INPUTS = (CLICKS, PURCHASES, USERS)
PARTITIONS = 4
USER_COUNT = 24
REGIONS = ("north", "east", "south", "west", "centre")
STEP_MS = 50
"""From one event to the next, as their timestamps say."""
OUT_OF_ORDER_MS = 2025
"""An event that is out of order is that much older: no multiple of the step, so that no two share a timestamp."""
MOVES_PER_ROUND = 5
EVENTS_PER_ROUND = 240
SPAN_MS = 6 * 3_600_000
"""The events of any run fit into it. The first is that old, so that none lies in the future."""


@dataclass(frozen=True, slots=True)
class Event:
    """One record of an input topic. Its value is its number among all events, a user's is the region."""

    topic: str
    key: str
    value: str
    timestamp_ms: int

    @property
    def partition(self) -> int:
        """The same in every input topic: they are joined."""
        return int(self.key[1:]) % PARTITIONS


@dataclass(frozen=True, slots=True)
class Round:
    """`moves` are processed before the first of `events` is written: a stream-table join depends on that order."""

    moves: tuple[Event, ...]
    events: tuple[Event, ...]


def rounds(seed: int, first_ms: int) -> Iterator[Round]:
    """Without an end. In the first round every user gets a region."""
    chance = random.Random(seed)
    users = [f"u{index}" for index in range(USER_COUNT)]
    moving, number = users, 0
    while True:
        moves = tuple(
            Event(USERS, user, chance.choice(REGIONS), first_ms + (number + index) * STEP_MS)
            for index, user in enumerate(moving)
        )
        number += len(moves)
        events = []
        for _ in range(EVENTS_PER_ROUND):
            late_ms = OUT_OF_ORDER_MS if chance.random() < 0.2 else 0
            topic = chance.choice((CLICKS, CLICKS, PURCHASES))
            events.append(Event(topic, chance.choice(users), str(number), first_ms + number * STEP_MS - late_ms))
            number += 1
        yield Round(moves, tuple(events))
        moving = chance.sample(users, MOVES_PER_ROUND)
