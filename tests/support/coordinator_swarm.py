"""The harness of the swarms around one coordinator: clients whose requests get lost, come twice or much later, a log
that lags and refuses, time, and rules that watch.

A swarm makes its stage, its clients and its rules, and lists its steps. It draws everything in an order of its own,
because a seed has to tell the same story later.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar, TypeAlias

from moldau.coordinator.runtime.machine import Effects, Loaded, Waiter
from tests.support.drawn_stage import Asked, DrawnStage, Manners, Watcher
from tests.support.drawn_steps import DrawnSwarm, Violation
from tests.support.machine_stage import Batch

Sent: TypeAlias = tuple[Callable[[Waiter], Any], int]
"""A request: what makes its event, and its version."""


class CoordinatorSwarm(DrawnSwarm, Watcher):
    STEPS: ClassVar = 400
    LATE_MAX: ClassVar = 8
    """The most requests that may still come again."""
    WAITS_MS: ClassVar[Sequence[int]] = (1, 100, 1_000, 3_000)
    LONG_WAIT_MS: ClassVar = (5_000, 80_000)
    HOLD_MS: ClassVar = 7_000
    """Longer than any client waits for a commit."""

    stage: DrawnStage[Any]
    watchers: Sequence[Watcher] = ()
    """The rules, which see every step before the clients do."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.asked: list[Asked] = []
        """The requests to the coordinator of the moment."""
        self.late: list[Any] = []
        """Requests that may come again, the oldest first."""
        self.manners = Manners()
        self.loses = self.repeats = 0.0
        """The probability that a request or its answer is lost, and that a request comes twice or late."""
        self.held_until_ms = 0

    def draw_manners(self) -> None:
        self.manners = Manners(self.random.choice((0.0, 0.0, 0.1)), self.random.choice((1.0, 0.8, 0.3)))

    def draw_losses(self) -> None:
        self.loses = self.random.choice((0.0, 0.05, 0.2))
        self.repeats = self.random.choice((0.0, 0.05, 0.2))

    # The story

    def run(self) -> None:
        self.begin()
        self.stage.manners = self.manners
        self.go(self.STEPS)

    def begin(self) -> None:
        """What happens before the first step, in front of a log without manners."""
        self.stage.step(Loaded())

    def time_ms(self) -> int:
        return self.stage.now_ms

    # Requests

    def ask(self, sent: Sent, owner: object) -> None:
        make, version = sent
        self.asked.append(self.stage.send(owner, version, make))

    @abstractmethod
    def answer(self, asked: Asked, response: Any) -> None:
        """A client hears the answer, unless it is lost."""

    def keep_late(self, sent: object) -> None:
        self.late = [*self.late[1 - self.LATE_MAX :], sent]

    def deliver_late(self) -> None:
        if self.late:
            self.ask_late(self.late.pop(self.random.randrange(len(self.late))))

    def ask_late(self, sent: Any) -> None:
        self.ask(sent, None)

    def is_answered(self, asked: Asked) -> bool:
        """Whether a request has the answers that it has to have from the coordinator that it came to."""
        return asked.replies > 0

    def check_answers(self) -> None:
        wrong = [each.event for each in self.asked if not self.is_answered(each)]
        if wrong:
            raise Violation(f"answered never, or too often: {wrong[:3]}")
        self.asked.clear()

    # The log and time

    def commit_log(self) -> None:
        if self.stage.now_ms >= self.held_until_ms:
            self.stage.manners = self.manners
            self.stage.commit_log(self.stage.boundary())

    def hold(self) -> None:
        """Nothing is committed for longer than anybody waits for that."""
        self.held_until_ms = self.stage.now_ms + self.HOLD_MS
        self.stage.manners = self.manners._replace(commits=0.0)

    def wait_a_little(self) -> None:
        self.wait(self.random.choice(self.WAITS_MS))

    def wait_long(self) -> None:
        self.wait(self.random.randint(*self.LONG_WAIT_MS))

    def wait(self, ms: int) -> None:
        self.stage.wait(ms)

    # Watching

    def stepped(self, event: Any, effects: Effects) -> None:
        for each in self.watchers:
            each.stepped(event, effects)

    def appended(self, batch: Batch, cause: object) -> None:
        for each in self.watchers:
            each.appended(batch, cause)

    def committed(self, batch: Batch) -> None:
        for each in self.watchers:
            each.committed(batch)

    def replied(self, asked: Asked, response: Any) -> None:
        for each in self.watchers:
            each.replied(asked, response)
        self.answer(asked, response)

    def commanded(self, command: Any) -> None:
        for each in self.watchers:
            each.commanded(command)

    def settled(self, event: Any) -> None:
        for each in self.watchers:
            each.settled(event)

    def replaced(self, *, is_told: bool) -> None:
        """A coordinator that is told that it was replaced has answered everything."""
        if is_told:
            self.check_answers()
        self.asked.clear()

    def cut(self) -> None:
        for each in self.watchers:
            each.cut()

    def loaded(self) -> None:
        for each in self.watchers:
            each.loaded()
