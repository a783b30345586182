"""The share coordinator without a broker around it, its log, which is pruned, and the requests of share partitions:
they get lost, come twice, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from moldau.broker.coordinators.share_persister import RETRIABLE, AnswerToken
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import Effects, Waiter
from moldau.coordinator.share_state.events import (
    LogPruned,
    PruneLog,
    ShareStateConfig,
    ShareStateEvent,
    StateAnswer,
    StateRequest,
)
from moldau.coordinator.share_state.records import ShareStateRecordReader
from moldau.coordinator.share_state.shard import ShareStateShard
from moldau.coordinator.share_state.state import ShareKey, ShareState
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import build_batch
from tests.simulation.groups.shell import REFUSALS, TICKS_MAX, WALL_MS
from tests.support.drawn_steps import Violation

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


class Batch(NamedTuple):
    """A batch of the log of `__share_group_state`."""

    end_offset: int
    data: bytes


class Witness(Protocol):
    """Is told what the coordinator does."""

    def asked(self, life: Any, request: StateRequest) -> None:
        """A request of a share partition came to the coordinator."""

    def answered(self, life: Any, request: StateRequest, answer: StateAnswer) -> None: ...


@dataclass(slots=True)
class StateHost:
    random: Random
    clock: Clock
    config: ShareStateConfig
    witness: Witness
    partition_count: Callable[[bytes], int | None]
    refuses: float = 0.0
    """How likely an append is refused."""
    commits: float = 1.0
    """How likely what was appended is committed at once."""
    attempts_max: int = 8
    """As often as the broker sends a request."""
    loses: float = 0.0
    """How likely a request or its answer is lost on the way."""
    log: list[Batch] = field(default_factory=list)
    everything: list[Batch] = field(default_factory=list)
    """The log as it would be if nothing was ever pruned."""
    end_offset: int = 0
    committed_end_offset: int = 0
    pruned: int = 0
    shard: ShareStateShard = field(init=False)
    _calls: list[Call] = field(default_factory=list)
    """The requests on their way."""

    def __post_init__(self) -> None:
        self.shard = ShareStateShard(self.config, 0, self.partition_count)
        self.step(machine.Loaded())

    # Requests

    def ask(self, life: object, request: StateRequest, answered: Callable[[StateAnswer], None]) -> None:
        """`answered` is called once, after at most so many attempts as the broker makes."""
        self._calls.append(Call(life, request, answered))

    def deliver(self) -> bool:
        """One request on its way arrives, or is lost. False where none is."""
        if not self._calls:
            return False
        self.carry(self._calls.pop(self.random.randrange(len(self._calls))))
        return True

    def carry(self, call: Call) -> None:
        if self.random.random() < self.loses / 2:
            self._ended(call, StateAnswer(ErrorCode.NETWORK_EXCEPTION))
            return
        self.witness.asked(call.life, call.request)

        def replied(answer: StateAnswer) -> None:
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

    # Steps

    def step(self, event: ShareStateEvent | machine.RuntimeEvent) -> None:
        effects = self._step(event)
        while effects.has_batch:
            appended = self._append(effects)
            effects = self._step(appended)
        if self.end_offset > self.committed_end_offset and self.random.random() < self.commits:
            self.commit()

    def _step(self, event: ShareStateEvent | machine.RuntimeEvent) -> Effects:
        effects = self.shard.step(event, self.clock.now_ms, self.clock.wall_ms())
        for token, response in effects.replies:
            assert isinstance(token, AnswerToken)
            token.complete(response)
        for command in effects.commands:
            assert isinstance(command, PruneLog)
            self._prune(command)
        return effects

    def _append(self, effects: Effects) -> machine.Appended | machine.AppendRefused:
        if self.random.random() < self.refuses:
            return machine.AppendRefused(self.random.choice(REFUSALS))
        data = build_batch(effects.records, base_offset=self.end_offset)
        self.end_offset += len(effects.records)
        for log in (self.log, self.everything):
            log.append(Batch(self.end_offset, data))
        return machine.Appended(self.end_offset)

    def commit(self, end_offset: int | None = None) -> None:
        """Up to here, as whole batches; the end where nothing is said."""
        wanted = self.end_offset if end_offset is None else end_offset
        self.committed_end_offset = max(self.committed_end_offset, wanted)
        self.step(machine.Committed(self.committed_end_offset))

    def boundary(self) -> int:
        """The end of some batch that may be cut away or committed, or of what is committed."""
        uncommitted = [each.end_offset for each in self.log if each.end_offset > self.committed_end_offset]
        return self.random.choice([self.committed_end_offset, *uncommitted])

    def _prune(self, command: PruneLog) -> None:
        if command.offset > self.committed_end_offset:
            raise Violation(f"{command.offset} is pruned, and only {self.committed_end_offset} is committed")
        if self.random.random() < 0.8:
            self.log = [each for each in self.log if each.end_offset > command.offset]
            self.pruned += 1
            self.clock.call_later(0, lambda: self.step(LogPruned(command.offset)))

    # Time

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
                self.step(machine.Tick())
        clock.now_ms = end_ms

    # Who coordinates

    def take_over(self) -> None:
        """Another node leads the partition: it has all that is committed and perhaps more, and reads it first."""
        self.compare()
        self._step(machine.Unloaded())
        end_offset = self.boundary()
        self.log = [each for each in self.log if each.end_offset <= end_offset]
        self.everything = [each for each in self.everything if each.end_offset <= end_offset]
        self.end_offset = self.committed_end_offset = end_offset
        self.shard = self._loaded(self.log)
        self.compare()
        self.step(machine.Loaded())
        self.step(machine.Committed(end_offset))

    def _loaded(self, log: list[Batch]) -> ShareStateShard:
        """Some batches at a time."""
        shard = ShareStateShard(self.config, self.random.randint(0, self.committed_end_offset), self.partition_count)
        reader, rest = LogReader(0, ShareStateRecordReader()), log
        while rest:
            count = self.random.choice((1, 3, len(rest)))
            piece, rest = rest[:count], rest[count:]
            for change, end_offset in reader.read(b"".join(each.data for each in piece)):
                shard.replay(change, end_offset)
        return shard

    def states(self) -> dict[ShareKey, ShareState]:
        return dict(self.shard.states())

    def compare(self) -> None:
        """Raises `Violation` where the live states differ from those of the log, pruned or not."""
        live = self.states()
        for name, log in (("pruned", self.log), ("whole", self.everything)):
            loaded = dict(self._loaded(log).states())
            if loaded != live:
                raise Violation(f"the states are {live}, and the {name} log says {loaded}")


@dataclass(slots=True, eq=False)
class Call:
    """A request of a share partition to the coordinator."""

    life: object
    request: StateRequest
    answered: Callable[[StateAnswer], None]
    attempts: int = 0
