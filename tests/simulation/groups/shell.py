"""A shard of the group coordinator without a broker around it: its log, its clocks, the next coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.image import NO_METADATA, CoordinatorImage
from moldau.coordinator.group.records import Change
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import Effects, TransactionWrite, Waiter
from moldau.coordinator.shard.record_reading import GroupRecordReader
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.streams.group import StreamsGroup
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import build_batch
from tests.support.drawn_steps import Violation
from tests.support.written_changes import written_changes

WALL_MS: Final = 1_700_000_000_000
REFUSALS: Final = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
TICKS_MAX: Final = 1_000
"""At one moment."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request, and what it was told."""

    event: events.Event | None = None
    owner: object = None
    """The client that reads the answer, None where there is none."""
    came_ms: int = 0
    log_end_offset: int = 0
    """When it came."""
    replies: int = 0


class Stored(NamedTuple):
    """A batch of the log."""

    base_offset: int
    end_offset: int
    data: bytes
    changes: tuple[Change, ...]
    transaction: TransactionWrite | None


class Watcher(Protocol):
    """Checks each step."""

    def stepped(self, event: events.Event, effects: Effects) -> None:
        """Before any record of the step is in the log, and before any reply is sent."""

    def appended(self, changes: tuple[Change, ...], end_offset: int) -> None: ...

    def committed(self, stored: Stored) -> None: ...

    def replied(self, asked: Asked, response: object) -> None: ...

    def settled(self, event: events.Event) -> None:
        """A step is over, with all that follows from it."""

    def unloaded(self) -> None:
        """This coordinator has answered all requests and ends."""

    def loaded(self) -> None: ...


@dataclass(slots=True)
class Manners:
    """How the log behaves for now."""

    refuses: float = 0.0
    """How likely an append is refused."""
    commits: float = 1.0
    """How likely what was appended is committed at once."""


@dataclass(slots=True)
class Shell:
    random: Random
    config: GroupConfig
    watcher: Watcher
    answer: Callable[[Asked, object], None]
    """Sends it."""
    image: CoordinatorImage = NO_METADATA
    """The cluster's metadata from now on."""
    now_ms: int = 0
    wall_skew_ms: int = 0
    manners: Manners = field(default_factory=Manners)
    log: list[Stored] = field(default_factory=list)
    committed_end_offset: int = 0
    life: int = 0
    shard: GroupShard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = GroupShard(self.config, current_image=lambda: self.image)

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms + self.wall_skew_ms

    # Requests

    def ask(self, owner: object, version: int, make: Callable[[Waiter], events.Event]) -> Asked:
        asked = Asked(owner=owner, came_ms=self.now_ms, log_end_offset=self.end_offset)
        asked.event = make(Waiter(asked, version))
        self.step(asked.event)
        return asked

    def step(self, event: events.Event) -> None:
        """As the broker's shell does: what a step writes is appended, and reported before anything else happens."""
        effects = self._stepped(event)
        cause = event
        while effects.has_batch:
            answer = self._append(effects)
            self._reply(effects)
            effects = self._stepped(answer)
        self._reply(effects)
        self.watcher.settled(cause)
        if self.end_offset > self.committed_end_offset and self.random.random() < self.manners.commits:
            self.commit()

    def _stepped(self, event: events.Event) -> Effects:
        effects = self.shard.step(event, self.now_ms, self.wall_ms)
        self.watcher.stepped(event, effects)
        return effects

    def _append(self, effects: Effects) -> machine.Appended | machine.AppendRefused:
        transaction = effects.transaction
        if transaction is not None and transaction.producer_epoch < self.epoch_of(transaction.producer_id):
            return machine.AppendRefused(ErrorCode.INVALID_PRODUCER_EPOCH)
        if self.random.random() < self.manners.refuses:
            return machine.AppendRefused(self.random.choice(REFUSALS))
        base_offset = self.end_offset
        changes = tuple(written_changes(effects))
        end_offset = base_offset + len(changes)
        data = batch_of(effects, base_offset, self.wall_ms)
        self.log.append(Stored(base_offset, end_offset, data, changes, transaction))
        self.watcher.appended(changes, end_offset)
        return machine.Appended(end_offset)

    def _reply(self, effects: Effects) -> None:
        for token, response in effects.replies:
            assert isinstance(token, Asked)
            token.replies += 1
            self.watcher.replied(token, response)
            self.answer(token, response)

    # The log

    def epoch_of(self, producer_id: int) -> int:
        """The epoch of the producer as the log knows it, -1 where it knows none."""
        transactions = (stored.transaction for stored in self.log if stored.transaction is not None)
        return max((each.producer_epoch for each in transactions if each.producer_id == producer_id), default=-1)

    def commit(self, end_offset: int | None = None) -> None:
        """Up to here, as whole batches; the end where nothing is said."""
        end_offset = self.end_offset if end_offset is None else end_offset
        for stored in self.log:
            if self.committed_end_offset < stored.end_offset <= end_offset:
                self.watcher.committed(stored)
        self.committed_end_offset = max(self.committed_end_offset, end_offset)
        self.step(machine.Committed(self.committed_end_offset))

    def boundary(self) -> int:
        """The end of some batch that may be cut away or committed, or of what is committed."""
        uncommitted = [each.end_offset for each in self.log if each.end_offset > self.committed_end_offset]
        return self.random.choice([self.committed_end_offset, *uncommitted])

    # Time

    def wait(self, ms: int) -> None:
        """Deadlines come up on the way, each at its time."""
        end_ms, ticks = self.now_ms + ms, 0
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            ticks = 0 if deadline_ms > self.now_ms else ticks + 1
            if ticks > TICKS_MAX:
                raise Violation("a deadline is due again and again")
            self.now_ms = max(self.now_ms, deadline_ms)
            self.step(machine.Tick())
        self.now_ms = end_ms

    def freeze(self, ms: int) -> None:
        """The process stands still: its deadlines come late, and all at once."""
        self.now_ms += ms

    # Who coordinates

    def take_over(self, *, is_told: bool) -> None:
        """Another node leads the partition: it has all that is committed and perhaps more, and reads it first."""
        if is_told:
            effects = self._stepped(machine.Unloaded())
            assert not effects.has_batch, "a coordinator that was replaced writes nothing"
            self._reply(effects)
            self.watcher.unloaded()
        end_offset = self.boundary()
        self.log = [stored for stored in self.log if stored.end_offset <= end_offset]
        self.life += 1
        self.shard = GroupShard(self.config, self._told_committed(), lambda: self.image)
        self._load(self.shard)
        for stored in self.log:
            if stored.end_offset > self.committed_end_offset:
                self.watcher.committed(stored)
        self.committed_end_offset = self.end_offset
        self.watcher.loaded()
        self.step(machine.Loaded())
        self.step(machine.Committed(self.committed_end_offset))

    def _told_committed(self) -> int:
        """A new leader's high watermark lags."""
        return self.random.choice([0, self.committed_end_offset, self.random.randint(0, self.committed_end_offset)])

    def compare(self) -> None:
        """Raises `Violation` where live groups differ from those that the log makes. Classic groups are ahead of it."""
        copy = GroupShard(self.config, 0, lambda: self.image)
        self._load(copy)
        live, loaded = logged_groups(self.shard), logged_groups(copy)
        if live != loaded:
            differing = {name for name in {**live, **loaded} if live.get(name) != loaded.get(name)}
            told = [f"{live.get(name)}, from the log {loaded.get(name)}" for name in sorted(differing)]
            raise Violation(f"the groups are not what the log says: {told}")

    def _load(self, shard: GroupShard) -> None:
        """Some batches at a time."""
        reader, rest = LogReader(0, GroupRecordReader()), self.log
        while rest:
            count = self.random.choice((1, 3, len(rest)))
            piece, rest = rest[:count], rest[count:]
            for change, end_offset in reader.read(b"".join(stored.data for stored in piece)):
                shard.replay(change, end_offset)


NOT_LOGGED: Final = (
    *("visible_from", "seen_epoch", "seen_image", "_settled", "initialized_ms", "configured", "shutdown_member_id"),
    *("endpoint_epoch", "_state", "owners"),
)
"""What a group knows that no record says, or that follows from what the records say."""


def logged_groups(shard: GroupShard) -> dict[str, dict[str, object]]:
    """What the records say of each group that heartbeats keep up."""
    return {
        name: {field: value for field, value in vars(group).items() if field not in NOT_LOGGED}
        | {"owners": vars(group.owners) if isinstance(group, StreamsGroup) else None}
        for name, group in shard._groups.items()
        if not isinstance(group, ClassicGroup)
    }


def batch_of(effects: Effects, base_offset: int, wall_ms: int) -> bytes:
    """As the broker's shell builds it."""
    if effects.transaction is None:
        return build_batch(effects.records, base_offset=base_offset, base_sequence=0)
    producer_id, producer_epoch, end, _ = effects.transaction
    if end is None:
        return build_batch(
            effects.records,
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
    return end_transaction_marker(
        commits=end.is_commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=end.coordinator_epoch,
        timestamp=wall_ms,
        base_offset=base_offset,
    )
