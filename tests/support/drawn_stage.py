"""A stage for swarms: a log that refuses, lags and loses what was not committed, and a process that ends, as drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple

from moldau.coordinator.runtime.machine import Effects, Waiter
from moldau.protocol.errors import ErrorCode
from tests.support.machine_stage import Batch, MachineStage, ShardT

REFUSALS: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@dataclass(slots=True, eq=False)
class Asked:
    """A request, and its answers."""

    owner: object
    """The client that reads the answer, None if there is none."""
    came_ms: int
    log_end_offset: int
    """When it came."""
    event: Any = None
    replies: int = 0
    response: object = None


class Manners(NamedTuple):
    """How the log and the process behave for now: the probability of each."""

    refuses: float = 0.0
    """An append is refused."""
    commits: float = 1.0
    """What was appended is committed at once."""
    crashes: float = 0.0
    """The process ends between an append and what follows from it."""


class Watcher:
    """Checks each step. The methods are the hooks of `MachineStage`, and `replied` to a request."""

    def stepped(self, event: Any, effects: Effects) -> None: ...

    def appended(self, batch: Batch, cause: object) -> None: ...

    def committed(self, batch: Batch) -> None: ...

    def replied(self, asked: Asked, response: Any) -> None: ...

    def commanded(self, command: Any) -> None: ...

    def settled(self, event: Any) -> None: ...

    def replaced(self, *, is_told: bool) -> None: ...

    def cut(self) -> None: ...

    def loaded(self) -> None: ...


class DrawnStage(MachineStage[ShardT]):
    def __init__(self, random: Random, watcher: Watcher, *of_machine: Any) -> None:
        """`of_machine`: the arguments of the machine's own stage. Its first event, `Loaded`, is not watched."""
        self.random = random
        self.watcher = Watcher()
        self.manners = Manners()
        super().__init__(*of_machine)
        self.watcher = watcher

    def send(self, owner: object, version: int, make: Callable[[Waiter], Any]) -> Asked:
        """A request of a client, which gets the answers through the watcher."""
        asked = Asked(owner, self.now_ms, self.end_offset)
        asked.event = make(Waiter(asked, version))
        self.step(asked.event)
        return asked

    # As drawn

    def append_error(self, effects: Effects) -> ErrorCode:
        is_refused = self.random.random() < self.manners.refuses
        return self.random.choice(REFUSALS) if is_refused else ErrorCode.NONE

    def commits_with_append(self) -> bool:
        """As on a broker without other replicas in sync: then all that is before it is committed, too."""
        is_alone = len(self.uncommitted()) == 1
        return is_alone and self.random.random() < self.manners.commits / 2

    def process_ends(self) -> bool:
        return self.random.random() < self.manners.crashes

    def told_committed(self) -> int:
        return self.random.choice([0, self.committed_end_offset, self.random.randint(0, self.committed_end_offset)])

    def first_events(self) -> Sequence[object]:
        """The high watermark moves before the machine is told that it is loaded, or after."""
        return self.random.sample(super().first_events(), 2)

    def pieces(self) -> Iterator[Sequence[Batch]]:
        rest = self.log
        while rest:
            count = self.random.choice((1, 3, 30, len(rest)))
            yield rest[:count]
            rest = rest[count:]

    def boundary(self) -> int:
        """The end of some batch that may be cut away or committed, or of what is committed."""
        return self.random.choice([self.committed_end_offset, *(batch.end_offset for batch in self.uncommitted())])

    def take_over(self, *, is_told: bool = True, end_offset: int | None = None) -> None:
        """The next coordinator has all that is committed, and perhaps more."""
        super().take_over(is_told=is_told, end_offset=self.boundary() if end_offset is None else end_offset)

    def freeze(self, ms: int) -> None:
        """The process stands still: its deadlines come late, and all at once."""
        self.now_ms += ms

    # Watched

    def deliver(self, token: Any, response: object) -> None:
        assert isinstance(token, Asked)
        token.replies += 1
        token.response = response
        self.watcher.replied(token, response)

    def perform(self, command: Any) -> None:
        self.watcher.commanded(command)

    def stepped(self, event: Any, effects: Effects) -> None:
        self.watcher.stepped(event, effects)

    def appended(self, batch: Batch, cause: object) -> None:
        self.watcher.appended(batch, cause)

    def committed(self, batch: Batch) -> None:
        self.watcher.committed(batch)

    def settled(self, event: Any) -> None:
        self.watcher.settled(event)
        if self.end_offset > self.committed_end_offset and self.random.random() < self.manners.commits:
            self.commit_log()

    def replaced(self, *, is_told: bool) -> None:
        self.watcher.replaced(is_told=is_told)

    def cut(self) -> None:
        self.watcher.cut()

    def loaded(self) -> None:
        self.watcher.loaded()
