"""The share coordinator without a broker around it, its log, which is pruned, and the requests of share partitions:
they get lost, come twice, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, Protocol

from moldau.broker.coordinators.share_state_persister import RETRIABLE, AnswerToken
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share_coordinator.events import LogPruned, PruneLog, ShareStateConfig, StateAnswer, StateRequest
from moldau.coordinator.share_coordinator.shard import ShareStateShard
from moldau.protocol.errors import ErrorCode
from tests.support.drawn_stage import DrawnStage, Watcher
from tests.support.drawn_steps import Violation
from tests.support.machine_stage import TICKS_MAX, WALL_MS, Batch
from tests.support.share_coordinator_stage import ShareCoordinatorStage

RETRY_MS: Final = 200


class Alarm:
    """A timer that is set."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """The time of all, in the place of a loop and of an environment."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Alarm]] = []
        self._order = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: object) -> Alarm:
        alarm = Alarm(lambda: callback(*arguments))
        self._order += 1
        heappush(self._heap, (self.now_ms + round(delay_s * 1000), self._order, alarm))
        return alarm

    def next_ms(self) -> int | None:
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self) -> None:
        """The first alarm."""
        callback = heappop(self._heap)[2].callback
        if callback is not None:
            callback()


class Witness(Protocol):
    """Is told what the coordinator does."""

    def asked(self, life: Any, request: StateRequest) -> None:
        """A request of a share partition came to the coordinator."""

    def answered(self, life: Any, request: StateRequest, answer: StateAnswer) -> None: ...


class StateHost(DrawnStage[ShareStateShard], ShareCoordinatorStage):
    attempts_max = 8
    """As often as the broker sends a request."""
    loses = 0.0
    """The probability that a request or its answer is lost on the way."""

    def __init__(
        self,
        random: Random,
        clock: Clock,
        config: ShareStateConfig,
        witness: Witness,
        partition_count: Callable[[bytes], int | None],
    ) -> None:
        self.clock = clock
        self.witness = witness
        self.everything: list[Batch] = []
        """The log as it would be if nothing was ever pruned."""
        self._calls: list[Call] = []
        """The requests on their way."""
        self._unanswered: list[Call] = []
        """Those that came to this coordinator."""
        super().__init__(random, Watcher(), config, partition_count)

    # Requests

    def call(self, life: object, request: StateRequest, answered: Callable[[StateAnswer], None]) -> None:
        """`answered` is called once, after at most so many attempts as the broker makes."""
        self._calls.append(Call(life, request, answered))

    def deliver_call(self) -> bool:
        """One request on its way arrives, or is lost. False if there is none."""
        if not self._calls:
            return False
        self.carry(self._calls.pop(self.random.randrange(len(self._calls))))
        return True

    def carry(self, call: Call) -> None:
        if self.random.random() < self.loses / 2:
            self._ended(call, StateAnswer(ErrorCode.NETWORK_EXCEPTION))
            return
        self.witness.asked(call.life, call.request)

        self._unanswered.append(call)

        def replied(answer: StateAnswer) -> None:
            self._unanswered.remove(call)
            self.witness.answered(call.life, call.request, answer)
            if self.random.random() < self.loses / 2:
                answer = StateAnswer(ErrorCode.NETWORK_EXCEPTION)
            self._ended(call, answer)

        self.step(call.request._replace(waiter=Waiter(AnswerToken(replied), 0)))

    def _ended(self, call: Call, answer: StateAnswer) -> None:
        if answer.error in RETRIABLE and call.attempts < self.attempts_max:
            call.attempts += 1
            self.clock.call_later(RETRY_MS / 1000, self._calls.append, call)
        else:
            call.answered(answer)

    @property
    def is_idle(self) -> bool:
        return not self._calls

    def deliver(self, token: Any, response: object) -> None:
        assert isinstance(token, AnswerToken)
        token.complete(response)

    # The log

    def appended(self, batch: Batch, cause: object) -> None:
        self.everything.append(batch)

    def perform(self, command: PruneLog) -> None:
        if command.offset > self.committed_end_offset:
            raise Violation(f"{command.offset} is pruned, and only {self.committed_end_offset} is committed")
        if self.random.random() < 0.8:
            self.log = [batch for batch in self.log if batch.end_offset > command.offset]
            self.clock.call_later(0, lambda: self.step(LogPruned(command.offset)))

    # Time

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        """That of the clock, which is the time of the share partitions as well."""
        return self.clock.now_ms

    def wait(self, ms: int) -> None:
        """Alarms and deadlines come up on the way, each at its time."""
        clock, ticks = self.clock, 0
        end_ms = clock.now_ms + ms
        while True:
            due = [each for each in (clock.next_ms(), self.shard.next_deadline_ms()) if each is not None]
            if not due or min(due) > end_ms:
                break
            ticks = 0 if min(due) > clock.now_ms else ticks + 1
            if ticks > TICKS_MAX:
                raise Violation("a deadline is due again and again")
            clock.now_ms = max(clock.now_ms, min(due))
            if clock.next_ms() == min(due):
                clock.fire()
            else:
                self.tick()
        clock.now_ms = end_ms

    # Which broker coordinates

    def take_over(self, *, is_told: bool = True, end_offset: int | None = None) -> None:
        self.compare()
        super().take_over(is_told=is_told, end_offset=end_offset)

    def cut(self) -> None:
        self.everything = [batch for batch in self.everything if batch.end_offset <= self.end_offset]

    def replaced(self, *, is_told: bool) -> None:
        """The connections of a process that ends are lost, and with them its answers."""
        unanswered, self._unanswered = self._unanswered, []
        assert not (is_told and unanswered), "a coordinator that was replaced answers every request"
        for call in unanswered:
            self._ended(call, StateAnswer(ErrorCode.NETWORK_EXCEPTION))

    def loaded(self) -> None:
        self.compare()

    def compare(self) -> None:
        """Raises `Violation` if the live states differ from those of the log, pruned or not."""
        live, pruned = self.states(), self.log
        for name, log in (("pruned", pruned), ("whole", self.everything)):
            self.log = log
            loaded = dict(self.loaded_shard(self.told_committed()).states())
            self.log = pruned
            if loaded != live:
                raise Violation(f"the states are {live}, and the {name} log says {loaded}")


@dataclass(slots=True, eq=False)
class Call:
    """A request of a share partition to the coordinator."""

    life: object
    request: StateRequest
    answered: Callable[[StateAnswer], None]
    attempts: int = 0
