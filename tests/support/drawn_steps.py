"""The random steps of a story, with weights, and the swarms of state machines that take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random

Step = Callable[[], None]
Weighted = Sequence[tuple[Step, float]]
"""Steps and their weights."""


def drawn_steps(random: Random, weighted: Weighted, count: int) -> list[Step]:
    return random.choices([step for step, _ in weighted], [weight for _, weight in weighted], k=count)


class Violation(AssertionError):
    """A rule of the machines of a swarm does not hold."""


class DrawnSwarm(ABC):
    """Machines on virtual time, to which random steps happen; then all is quiet, and they settle."""

    random: Random
    steps: Weighted
    last = "the start"
    """The name of the last step."""

    @abstractmethod
    def time_ms(self) -> int: ...

    @abstractmethod
    def wait(self, ms: int) -> None: ...

    def look(self) -> None:
        """Check what must hold after each step; nothing if rules watch the steps. Raises `Violation`."""
        return

    @abstractmethod
    def end(self) -> None:
        """Nothing disturbs the machines any more: they settle. Raises `Violation`."""

    def go(self, count: int) -> None:
        """Take so many steps, and end. Raises `Violation`, which says when."""
        try:
            for step in drawn_steps(self.random, self.steps, count):
                self.last = step.__name__
                step()
                self.look()
            self.last = "end"
            self.end()
        except Violation as violation:
            raise Violation(f"after {self.last} at {self.time_ms()} ms: {violation}") from None
