"""Random members of groups of one kind that is kept up by heartbeats alone, under one coordinator, which is taken over
again and again, while topics come, grow and go; then all is quiet, and the groups settle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, Generic, Protocol, TypeVar

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.target import ComputeTarget, TargetComputed
from tests.simulation.groups.client import Sent
from tests.simulation.groups.heartbeat_rules import HeartbeatRules
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.coordinator_swarm import CoordinatorSwarm
from tests.support.drawn_stage import Asked, Manners
from tests.support.drawn_steps import Violation, Weighted
from tests.support.topics_image import TestImage, TestTopic, topic_id_of

GROUPS: Final = ("g", "h")
TOPICS: Final = ("t", "u", "v")
QUIET_ROUNDS: Final = 40
ROUND_MS: Final = 5_000
AT_ONCE: Final = GroupConfig().target_size_at_once


class HeartbeatMember(Protocol):
    """A member as clients are."""

    group_id: str
    member_id: str
    epoch: int
    """The member epoch that it knows; 0: it joins with its next heartbeat."""
    says_nothing_new: bool
    """Whether its last heartbeat only said that it lives: such a request may come again much later."""

    def begin(self) -> None:
        """A process begins: of what it was it knows its configuration."""

    def say_everything(self) -> None:
        """With the next heartbeat: the coordinator may know less than the member."""

    def heartbeat(self) -> Sent: ...

    def leave(self) -> Sent: ...

    def hear(self, response: object) -> None:
        """The answer to what it asked last."""


MemberT = TypeVar("MemberT", bound=HeartbeatMember)


class Topics:
    """The topics of a cluster: they come, grow and go."""

    def __init__(self, random: Random, names: Sequence[str]) -> None:
        self.random = random
        self.names = names
        self.settings: Mapping[str, str] = {}
        """Of every group, by Kafka's names."""
        self.may_go = True
        self.by_name: dict[str, TestTopic] = {}
        self._made = self._versions = 0
        for name in names[: random.randint(1, len(names))]:
            self.set_partitions(name, random.randint(1, 6))

    def set_partitions(self, name: str, count: int) -> None:
        """A topic that is made again has another id."""
        known = self.by_name.get(name)
        if known is None:
            self._made += 1
        topic_id = topic_id_of(f"{name}{self._made}") if known is None else known.id
        self.by_name[name] = TestTopic(name, topic_id, count)

    def change(self) -> None:
        name = self.random.choice(self.names)
        if self.may_go and self.random.random() < 0.3 and len(self.by_name) > 1:
            self.by_name.pop(name, None)
        else:
            known = self.by_name.get(name)
            self.set_partitions(name, self.random.randint(1, 3) + (known.partitions_count if known else 0))

    def image(self) -> TestImage:
        self._versions += 1
        return TestImage(tuple(self.by_name.values()), self._versions, self._versions, self.settings)

    def partitions(self) -> dict[str, frozenset[tuple[bytes, int]]]:
        """Those of each topic, by name."""
        return {
            topic.name: frozenset((topic.id, index) for index in range(topic.partitions_count))
            for topic in self.by_name.values()
        }

    def some(self) -> list[str]:
        return sorted(self.random.sample(self.names, self.random.choice((1, 1, 2, 3))))


class HeartbeatSwarm(CoordinatorSwarm, Generic[MemberT]):
    stage: DrawnGroupStage
    members: list[MemberT]

    def __init__(self, random: Random, topics: Topics, rules: HeartbeatRules[Any], config: GroupConfig) -> None:
        super().__init__(random)
        self.topics = topics
        self.rules = rules
        self.watchers = (rules,)
        self.stage = DrawnGroupStage(random, self, config, topics.image())
        rules.stage = self.stage
        self.draw_manners()
        self.draw_losses()
        self._targets: list[ComputeTarget] = []
        """What threads compute; it is reported late, and gets lost with the coordinator."""
        self._awaited: dict[str, int] = {}
        """The number of what a member asked last, by its id."""
        self._asked_count = 0
        self._paused_until: dict[int, int] = {}
        """By the place of the member in the list."""
        self.steps: Weighted = [
            (self.heartbeat, 100),
            (self.wait_a_little, 40),
            (self.wait_long, random.choice((0, 2, 6))),
            (self.commit_log, 20),
            (self.pause, random.choice((0, 2, 5))),
            (self.restart, random.choice((0, 2, 5))),
            (self.leave, random.choice((0, 1, 3))),
            (self.change_topics, random.choice((0, 1, 3))),
            (self.deliver_late, 10 if self.repeats else 0),
            (self.take_over, random.choice((0, 1, 4))),
            (self.stage.compare, 2),
        ]

    # The story

    def end(self) -> None:
        """Nothing is lost, every member sends heartbeats: the groups settle."""
        self.stage.manners = Manners()
        self.loses = self.repeats = 0.0
        self.late.clear()
        self._paused_until.clear()
        self.stage.commit_log()
        for member in self.members:
            # A request that came much later than another one may have moved the member: no answer told it.
            member.say_everything()
        self.quieten()
        self.settle()

    def settle(self) -> None:
        """Heartbeats in rounds until the groups are settled. Raises `Violation` if they never are."""
        why = ""
        for _ in range(QUIET_ROUNDS):
            for member in self.members:
                self.send(member.heartbeat(), member)
                while self.follow(member):
                    self.send(member.heartbeat(), member)
            self.wait(ROUND_MS)
            why = self.why_unsettled()
            if not why:
                self.stage.compare()
                return
        raise Violation(f"after {QUIET_ROUNDS} quiet rounds: {why}")

    def quieten(self) -> None:
        """Prepare the quiet rounds of the end."""

    @abstractmethod
    def follow(self, member: MemberT) -> bool:
        """The member takes and gives back what it was told. Whether that changed what it has."""

    @abstractmethod
    def why_unsettled(self) -> str:
        """Why the groups are not settled; nothing if they are."""

    # Watching

    def commanded(self, command: Any) -> None:
        if isinstance(command, ComputeTarget):
            self._targets.append(command)
        else:
            self.take_command(command)

    def take_command(self, command: Any) -> None:
        """A command that only one kind of group has."""
        raise AssertionError(f"no such command: {command}")

    def loaded(self) -> None:
        super().loaded()
        self._targets.clear()

    # Members

    def heartbeat(self) -> None:
        place = self.random.randrange(len(self.members))
        if self._paused_until.get(place, 0) > self.stage.now_ms:
            return
        member = self.members[place]
        if member.member_id in self._awaited:  # It has lost its patience.
            member.say_everything()
        self.send(member.heartbeat(), member)

    def send(self, sent: Sent, member: MemberT) -> None:
        """It may get lost, come twice, or come again much later."""
        number = self._asked_count = self._asked_count + 1
        self._awaited[member.member_id] = number
        if self.random.random() < self.repeats and member.says_nothing_new:
            self.keep_late(sent)
        if self.random.random() >= self.loses / 2:
            self.ask(sent, (member, number))
        else:
            member.say_everything()

    def answer(self, asked: Asked, response: object) -> None:
        if not isinstance(asked.owner, tuple):
            return
        member, number = asked.owner
        if self._awaited.get(member.member_id) != number:
            return
        del self._awaited[member.member_id]
        if self.random.random() >= self.loses:
            member.hear(response)
        else:
            member.say_everything()

    def pause(self) -> None:
        place = self.random.randrange(len(self.members))
        self._paused_until[place] = self.stage.now_ms + self.random.randint(1, 90_000)

    def restart(self) -> None:
        member = self.random.choice(self.members)
        self._awaited.pop(member.member_id, None)
        member.begin()

    def leave(self) -> None:
        member = self.random.choice(self.members)
        if member.epoch > 0:
            self._awaited.pop(member.member_id, None)
            sent = member.leave()
            if self.random.random() >= self.loses / 2:
                self.ask(sent, None)

    # The cluster, time, the coordinator

    def change_topics(self) -> None:
        self.topics.change()
        self.stage.image = self.topics.image()

    def wait(self, ms: int) -> None:
        while self._targets and self.random.random() < 0.7:
            command = self._targets.pop(0)
            self.stage.step(TargetComputed(command.group_id, command.epoch, command.compute()))
        super().wait(ms)
        self.rules.look()

    def take_over(self) -> None:
        is_told = self.random.random() < 0.5
        self.stage.wall_skew_ms = self.random.randint(-2_000, 2_000)
        for member in self.members:
            member.say_everything()
        self.stage.compare()
        self.stage.take_over(is_told=is_told)
