"""Random members of a share group that share one partition, whose leader moves, over a share coordinator that is taken
over, refuses writes and loses answers; then all is quiet, and everything is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import getclosurevars
from random import Random
from typing import Any, Final, cast

from moldau.broker.share_partitions import runner
from moldau.broker.share_partitions.dead_letter_queue import DeadLetterWriter
from moldau.broker.share_partitions.registry import SharePartitionRegistry
from moldau.broker.share_partitions.runner import ShareCounts, SharePartitionPorts, SharePartitionRunner
from moldau.broker.share_partitions.settings import ShareSettings
from moldau.coordinator.share_coordinator.events import (
    InitializeState,
    ShareStateConfig,
    StateAnswer,
    StateRequest,
    WriteState,
)
from moldau.coordinator.share_coordinator.state import NO_OFFSET, ShareKey
from moldau.protocol.errors import ErrorCode
from moldau.replication.share.acquisition import AcquireParameters
from moldau.replication.share.changes import (
    ACKNOWLEDGE_GAP,
    ACKNOWLEDGE_RENEW,
    AcknowledgementBatch,
    DeadLetter,
    ShareLimits,
)
from tests.simulation.share_records.coordinator_host import Clock, StateHost
from tests.simulation.share_records.rules import ACCEPT, REJECT, RELEASE, Generation, Life, Rules
from tests.simulation.share_records.topic_log import TopicLog
from tests.support.drawn_stage import Manners
from tests.support.drawn_steps import DrawnSwarm, Violation, Weighted

STEPS: Final = 400
KEY: Final = ShareKey("g", b"t" * 16, 0)
MEMBERS: Final = ("a", "b", "c")
NODES: Final = 3
LOCK_MS: Final = 15_000
QUIET_ROUNDS: Final = 200
KINDS: Final = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, ACKNOWLEDGE_GAP, ACKNOWLEDGE_RENEW)


class Nothing:
    """Stands for parts of the broker in whose answers nobody is interested here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@dataclass(slots=True, eq=False)
class Leadership:
    """The partition on a node that leads it, or believes that it does: what a share partition uses of it."""

    leader_epoch: int
    log: TopicLog
    end_offset: int | None = None
    """The end of what is committed there; None: it leads, and everything is."""
    listeners: list[Any] = field(default_factory=list)
    is_leader: bool = True

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset if self.end_offset is None else self.end_offset

    def add_listener(self, listener: object) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: object) -> None:
        if listener in self.listeners:
            self.listeners.remove(listener)


@dataclass(slots=True)
class Settings:
    """Those of the group, for a share partition."""

    settings: ShareSettings

    def settings_of(self, group_id: str) -> ShareSettings:
        return self.settings


class Node:
    """A broker, as far as share partitions see one: its replicas, and the share coordinator as it reaches it."""

    def __init__(self, host: StateHost, rules: Rules, settings: ShareSettings, work: Work) -> None:
        self.host = host
        self.rules = rules
        self.leadership: Leadership | None = None
        parts: list[Any] = [host.clock, host.clock, work.spawn, Nothing(), self, Settings(settings), ShareCounts()]
        parts.append(rules)
        self.partitions = SharePartitionRegistry(cast(Any, self), SharePartitionPorts(*parts))

    def find(self, key: object) -> Leadership | None:
        return self.leadership

    def ask(self, request: StateRequest, answered: Callable[[StateAnswer], None]) -> None:
        """A share partition reads its state with a method of its own. What it writes at once is at its last offset."""
        if isinstance(request, WriteState):
            starts = [write.start_offset for write, _ in getclosurevars(answered).nonlocals["writes"]]
            if request.start_offset != max(starts):
                raise Violation(f"the start offset {request.start_offset} is stored, and it was at {max(starts)}")
        self.host.call(self.rules.life_of(getattr(answered, "__self__", None)), request, answered)


class Work:
    """The coroutines of share partitions: the writing of dead letters waits until it is resumed."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[Any, Any, None]] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.waiting.append(work)
        self.resume(len(self.waiting) - 1)

    def resume(self, place: int) -> None:
        work = self.waiting.pop(place)
        with suppress(StopIteration):
            work.send(None)
            self.waiting.append(work)


class Pause:
    """Awaits one `Work.resume`."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class DeadLetters:
    """Stands for the writing of dead letters: the queue has them at the end of `run`."""

    def __init__(self, rules: Rules, key: object, letter: DeadLetter, is_open: Callable[[], bool]) -> None:
        self._rules = rules
        self._letter = letter
        self._is_open = is_open

    async def run(self) -> bool:
        await Pause()
        if not self._is_open():
            return False
        owner = cast(Any, self._is_open).__closure__[0].cell_contents
        life = self._rules.life_of(owner)
        assert life is not None
        self._rules.lettered(life, self._letter.first_offset, self._letter.last_offset)
        return True


class ShareRecordsSwarm(DrawnSwarm):
    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/share records")
        self.clock = Clock()
        lookups = Random(f"{seed}/lookups")
        self.log = TopicLog(random, lookups)
        self.limits = ShareLimits(
            random.choice((2, 3, 5)),
            random.choice((20, 50, 500)),
            LOCK_MS,
            random.random() < 0.8,
            random.random() < 0.4,
        )
        reset = lookups.choice(("earliest", "by_duration:PT1H"))
        self.settings = ShareSettings(self.limits, random.random() < 0.5, reset)
        self.rules = Rules(self.log, self.limits.delivery_count_max)
        config = ShareStateConfig(
            updates_per_snapshot=random.choice((1, 3, 500)),
            prune_interval_ms=random.choice((5_000, 300_000)),
            cold_snapshot_interval_ms=random.choice((20_000, 300_000)),
        )
        self.host = StateHost(random, self.clock, config, self.rules, lambda _: 1)
        self._manners = Manners(random.choice((0.0, 0.0, 0.1)), random.choice((1.0, 0.8, 0.3)))
        self._loses = random.choice((0.0, 0.1))
        self.host.attempts_max = random.choice((1, 3, 8))
        self._transactions = random.choice((0.0, 0.4))
        self.work = Work()
        self.nodes = [Node(self.host, self.rules, self.settings, self.work) for _ in range(NODES)]
        self.leader = self.nodes[0]
        self.leader_epoch = 0
        self.leader.leadership = Leadership(0, self.log)
        self.steps: Weighted = [
            (self.fetch, 60),
            (self.acknowledge, 60),
            (self.deliver, 80),
            (self.write_dead_letter, 20),
            (self.commit_state, 30),
            (self.wait_a_little, 20),
            (self.wait_long, random.choice((1, 4, 10))),
            (self.grow, 20),
            (self.delete_records, random.choice((0, 0, 3))),
            (self.compact, random.choice((0, 0, 3))),
            (self.end_session, random.choice((0, 2, 5))),
            (self.move_leader, random.choice((0, 1, 4))),
            (self.tell_former_leaders, 4),
            (self.take_over, random.choice((0, 2, 4))),
            (self.reset, random.choice((0, 0, 0, 1))),
        ]

    # The story

    def run(self) -> None:
        for _ in range(6):
            self.log.grow(self._transactions)
        self.initialize(1, NO_OFFSET)
        self.host.manners, self.host.loses = self._manners, self._loses
        vars(runner)["DeadLetterWriter"] = DeadLetters
        try:
            self.go(STEPS)
        finally:
            vars(runner)["DeadLetterWriter"] = DeadLetterWriter

    def time_ms(self) -> int:
        return self.clock.now_ms

    def wait(self, ms: int) -> None:
        self.host.wait(ms)

    def look(self) -> None:
        for node in self.nodes:
            shared = node.partitions.find(KEY)
            life = self.rules.life_of(shared)
            if life is not None:
                self.rules.look(life, self.clock.now_ms)

    def initialize(self, state_epoch: int, start_offset: int) -> None:
        """The state of the share partition begins, or begins anew. Repeated until it is confirmed."""
        is_done = False

        def answered(answer: StateAnswer) -> None:
            nonlocal is_done
            is_done = answer.error is ErrorCode.NONE

        manners, loses = self.host.manners, self.host.loses
        self.host.manners, self.host.loses = Manners(), 0.0
        begin = self.log.log_start_offset if start_offset == NO_OFFSET else start_offset
        self.rules.generations[state_epoch] = Generation(begin)
        self.host.call(None, InitializeState(cast(Any, None), KEY, state_epoch, start_offset), answered)
        while not is_done:
            assert self.host.deliver_call(), "it is on its way"
        self.host.manners, self.host.loses = manners, loses

    def end(self) -> None:
        """Members accept what they get, until nothing is left."""
        self.host.manners, self.host.loses = Manners(), 0.0
        self.log.lookups = None
        self.log.end_transactions()
        self.tell_former_leaders()
        self._drain()
        end_offset = self.log.end_offset
        for _ in range(QUIET_ROUNDS):
            life = self.life_at(self.leader)
            self._drain()
            self.wait(LOCK_MS)
            self._drain()
            if life.shared.error is not None:
                continue
            if life.shared.machine.undelivered_range is not None:
                self.log.append(1)  # The start offset does not pass a gap until a record after it is acquired.
            self._fetch(life, MEMBERS[0], 500, 1_000, is_strict=False)
            self._acknowledge(life, MEMBERS[0], dict.fromkeys(sorted(life.held), ACCEPT))
            self._drain()
            self.look()
            machine = life.shared.machine
            if life.shared.is_active and machine.next_fetch_offset() >= self.log.end_offset and not machine.batches:
                self.rules.check_end(end_offset, has_dead_letters=self.limits.has_dead_letters)
                self.host.compare()
                return
        raise Violation(f"not everything is acknowledged after {QUIET_ROUNDS} rounds: {self._state()}")

    def _state(self) -> str:
        life = self.life_at(self.leader)
        machine = life.shared.machine
        flight = [
            (each.first_offset, each.last_offset, each.common_state and each.common_state.state)
            for each in machine.batches
        ]
        ends = (machine.start_offset, machine.end_offset, self.log.log_start_offset, self.log.end_offset)
        return f"{life.shared.error} {ends} {machine.next_fetch_offset()} {flight[:5]}"

    def _drain(self) -> None:
        while not self.host.is_idle or self.work.waiting:
            self.host.deliver_call()
            self.write_dead_letter()

    def write_dead_letter(self) -> None:
        if self.work.waiting:
            self.work.resume(self.random.randrange(len(self.work.waiting)))

    # Leaders

    def life_at(self, node: Node) -> Life:
        shared = node.partitions.get(KEY)
        assert isinstance(shared, SharePartitionRunner), "it believes that it leads"
        life = self.rules.life_of(shared)
        assert life is not None
        return life

    def move_leader(self) -> None:
        """The former leader does not know yet; it may become the leader again before it does."""
        if self.leader.leadership is not None:
            self.leader.leadership.end_offset = self.log.end_offset
        self.leader_epoch += 1
        self.leader = self.random.choice(self.nodes)
        if self.leader.leadership is not None and self.random.random() < 0.7:
            self.leader.leadership.leader_epoch = self.leader_epoch
            self.leader.leadership.end_offset = None
        else:
            self._tell(self.leader)
            self.leader.leadership = Leadership(self.leader_epoch, self.log)

    def tell_former_leaders(self) -> None:
        for node in self.nodes:
            if node is not self.leader:
                self._tell(node)

    def _tell(self, node: Node) -> None:
        if node.leadership is not None:
            for listener in [*node.leadership.listeners]:
                listener.on_becoming_follower()
        node.leadership = None

    # Members

    def some_node(self) -> Node:
        """The leader, or one that believes that it is."""
        others = [node for node in self.nodes if node.leadership is not None]
        return self.leader if self.random.random() < 0.8 else self.random.choice(others)

    def fetch(self) -> None:
        life = self.life_at(self.some_node())
        random = self.random
        is_strict = random.random() < 0.4
        self._fetch(life, random.choice(MEMBERS), random.choice((1, 5, 20, 500)), random.randint(1, 8), is_strict)

    def _fetch(self, life: Life, member_id: str, records_max: int, batches_max: int, is_strict: bool) -> None:
        """As the handler of ShareFetch."""
        shared = life.shared
        if not shared.is_active or not shared.machine.can_acquire:
            return
        offset = shared.machine.next_fetch_offset()
        if offset < self.log.log_start_offset:
            shared.machine.on_log_start_moved(self.log.log_start_offset)
            return
        leadership = cast(Leadership, shared.partition)
        end_offset = leadership.high_watermark
        aborted: list[tuple[int, int]] = []
        if self.settings.reads_committed:
            end_offset = min(end_offset, self.log.last_stable_offset)
            aborted = self.log.aborted_transactions
        batches = self.log.read(offset, end_offset, batches_max)
        if not batches:
            return
        wish = AcquireParameters(member_id, records_max, self.random.choice((3, 500)), is_strict, offset)
        acquired, _ = shared.acquire_records(wish, batches, aborted)
        if self.settings.reads_committed:
            told = {each for first, last, _ in acquired for each in range(first, last + 1)}
            told &= self.log.aborted - self.log.compacted
            if told:
                raise Violation(f"{sorted(told)} are delivered, and their transaction was aborted")
        self.rules.delivered(life, member_id, acquired, self.clock.now_ms, LOCK_MS)

    def acknowledge(self) -> None:
        """A run of what a member holds; its lock may be over."""
        life = self.life_at(self.some_node())
        if not life.held:
            return
        start = self.random.choice(sorted(life.held))
        member_id = life.held[start][0]
        last = start
        while last - start < 12 and life.held.get(last + 1, ("", 0))[0] == member_id:
            last += 1
        kinds = [self.random.choice(KINDS) for _ in range(start, self.random.randint(start, last) + 1)]
        if self.random.random() < 0.5:
            kinds = kinds[:1] * len(kinds)
        if self.random.random() < 0.05:
            member_id = self.random.choice(MEMBERS)  # It may be another one, which has not acquired them.
        self._acknowledge(life, member_id, {start + place: kind for place, kind in enumerate(kinds)})

    def _acknowledge(self, life: Life, member_id: str, kinds: dict[int, int]) -> None:
        if not kinds:
            return
        for offset in kinds.keys() & self.log.unread:
            kinds[offset] = ACKNOWLEDGE_GAP  # So does a client if it got no record.
        runs: list[list[int]] = []
        for offset in sorted(kinds):
            if runs and runs[-1][-1] == offset - 1:
                runs[-1].append(offset)
            else:
                runs.append([offset])
        batches = [AcknowledgementBatch(run[0], run[-1], self._types(kinds, run)) for run in runs]
        machine = life.shared.machine
        told = {offset: kind for offset, kind in kinds.items() if offset >= machine.start_offset}
        counts, epoch = {**life.counts}, machine.state_epoch
        outcomes: list[ErrorCode] = []

        def answered(error: ErrorCode, message: str | None) -> None:
            outcomes.append(error)
            if error is ErrorCode.NONE:
                self.rules.acknowledged(life, epoch, told, counts)

        before = {offset: life.held[offset] for offset in told if offset in life.held}
        life.shared.acknowledge(member_id, batches, answered)
        if outcomes and outcomes[0] is not ErrorCode.NONE:
            return
        for offset in before:
            if before[offset][1] <= self.clock.now_ms or before[offset][0] != member_id:
                raise Violation(f"{member_id} acknowledges {offset}, whose lock is {before[offset]}")
        self.rules.acknowledging(life, member_id, told, self.clock.now_ms, LOCK_MS)

    def _types(self, kinds: dict[int, int], run: list[int]) -> list[int]:
        """One for all of them, or one for each."""
        types = [kinds[offset] for offset in run]
        return types[:1] if len({*types}) == 1 and self.random.random() < 0.8 else types

    def end_session(self) -> None:
        """A member goes. Without any member left the leader forgets what was in flight."""
        node = self.some_node()
        life = self.life_at(node)
        member_id = self.random.choice(MEMBERS)
        life.shared.release(member_id)
        if life.shared.is_active:
            self.rules.has_released(life, member_id)
            life.held = {offset: holder for offset, holder in life.held.items() if holder[0] != member_id}
        if self.random.random() < 0.2:
            node.partitions.on_group_left(KEY.group_id)

    # The log, the coordinator, time

    def grow(self) -> None:
        self.log.grow(self._transactions)

    def delete_records(self) -> None:
        self.log.delete_some()

    def compact(self) -> None:
        self.log.compact()

    def deliver(self) -> None:
        self.host.deliver_call()

    def commit_state(self) -> None:
        self.host.commit_log(self.host.boundary())

    def take_over(self) -> None:
        self.host.take_over(is_told=self.random.random() < 0.5)

    def reset(self) -> None:
        """An administrator sets the offset of the group, which has no member then."""
        self.leader.partitions.on_group_left(KEY.group_id)
        offset = self.random.randint(self.log.log_start_offset, self.log.end_offset)
        self.initialize(max(self.rules.generations) + 1, offset)

    def wait_a_little(self) -> None:
        self.wait(self.random.choice((1, 100, 1_000)))

    def wait_long(self) -> None:
        self.wait(self.random.randint(LOCK_MS // 2, 3 * LOCK_MS))
