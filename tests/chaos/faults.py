"""What is done to a node in one round, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random


class Fault(Enum):
    KILL = "kill -9"
    TERM = "SIGTERM"


@dataclass(frozen=True, slots=True)
class Round:
    number: int
    fault: Fault
    after_s: float
    """Under load, once the load flows again."""


def rounds(kills: int, terms: int, seed: int) -> Iterator[Round]:
    """Both kinds mixed, as the seed says."""
    random = Random(f"{seed}/rounds")
    faults = [Fault.KILL] * kills + [Fault.TERM] * terms
    random.shuffle(faults)
    for number, fault in enumerate(faults, 1):
        yield Round(number, fault, 0.1 + 1.4 * random.random())
