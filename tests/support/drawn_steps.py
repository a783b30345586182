"""The random steps of a story, with weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Step = Callable[[], None]
Weighted = Sequence[tuple[Step, float]]
"""Steps and their weights."""


def drawn_steps(random: Random, weighted: Weighted, count: int) -> list[Step]:
    return random.choices([step for step, _ in weighted], [weight for _, weight in weighted], k=count)
