"""Random members of two consumer groups (KIP-848) under one coordinator, which is taken over again and again, while
topics come, grow and go; then all is quiet, and every partition has one owner.
"""

from __future__ import annotations

from random import Random
from typing import Final

from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.records import Change
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import Effects
from tests.simulation.groups.client import Sent
from tests.simulation.groups.consumer_member import ConsumerMember, Owned
from tests.simulation.groups.consumer_rules import ConsumerRules
from tests.simulation.groups.shell import Asked, Manners, Shell, Stored, Violation
from tests.support.drawn_steps import Weighted, drawn_steps
from tests.support.topics_image import TestImage, TestTopic, topic_id_of

STEPS: Final = 400
GROUPS: Final = ("g", "h")
TOPICS: Final = ("t", "u", "v")
LATE_MAX: Final = 8
QUIET_ROUNDS: Final = 40
ROUND_MS: Final = 5_000


class ConsumerSwarm:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/consumer groups")
        config = GroupConfig()
        self._topics_made = self._versions = 0
        self.topics: dict[str, TestTopic] = {}
        for name in TOPICS[: random.randint(1, 3)]:
            self._set_partitions(name, random.randint(1, 6))
        self.members = [
            ConsumerMember(
                f"c{number}",
                random.choice((*GROUPS, GROUPS[0])),
                self.some_topics(),
                random,
                f"s{number}" if random.random() < 0.3 else None,
            )
            for number in range(random.randint(2, 6))
        ]
        self.rules = ConsumerRules(self.members)
        self.shell = Shell(random, config, self, self.answer, image=self._image())
        self.rules.shell = self.shell
        self.asked: list[Asked] = []
        self._manners = Manners(random.choice((0.0, 0.0, 0.1)), random.choice((1.0, 0.8, 0.3)))
        self._loses = random.choice((0.0, 0.05, 0.2))
        self._repeats = random.choice((0.0, 0.05, 0.2))
        self._late: list[Sent] = []
        self._awaited: dict[ConsumerMember, int] = {}
        """The number of what a member asked last."""
        self._asked_count = 0
        self._paused_until: dict[ConsumerMember, int] = {}
        self._steps: Weighted = [
            (self.heartbeat, 100),
            (self.reconcile, 40),
            (self.wait_a_little, 40),
            (self.wait_long, random.choice((0, 2, 6))),
            (self.commit_log, 20),
            (self.pause, random.choice((0, 2, 5))),
            (self.restart, random.choice((0, 2, 5))),
            (self.leave, random.choice((0, 1, 3))),
            (self.subscribe, random.choice((0, 2, 4))),
            (self.change_topics, random.choice((0, 1, 3))),
            (self.deliver_late, 10 if self._repeats else 0),
            (self.take_over, random.choice((0, 1, 4))),
        ]
        self.last = ""

    def some_topics(self) -> list[str]:
        return sorted(self.random.sample(TOPICS, self.random.choice((1, 1, 2, 3))))

    # The story

    def run(self) -> None:
        self.shell.step(machine.Loaded())
        self.shell.manners = self._manners
        try:
            for step in drawn_steps(self.random, self._steps, STEPS):
                self.last = step.__name__
                step()
            self.last = "end"
            self.end()
        except Violation as violation:
            raise Violation(f"after {self.last} at {self.shell.now_ms} ms: {violation}") from None

    def end(self) -> None:
        """Nothing is lost, every member sends heartbeats: the groups settle."""
        self.shell.manners = Manners()
        self._loses = self._repeats = 0.0
        self._late.clear()
        self._paused_until.clear()
        self.shell.commit()
        why = ""
        for _ in range(QUIET_ROUNDS):
            for member in self.members:
                self._send(member.heartbeat(), member)
                while member.owned != member.target:
                    self._reconcile(member)
                    self._send(member.heartbeat(), member)
            self.shell.wait(ROUND_MS)
            self.rules.look()
            why = self.rules.is_settled(self.partitions_by_topic())
            if not why:
                return
        raise Violation(f"after {QUIET_ROUNDS} quiet rounds: {why}")

    def partitions_by_topic(self) -> dict[str, Owned]:
        return {
            topic.name: frozenset((topic.id, index) for index in range(topic.partitions_count))
            for topic in self.topics.values()
        }

    # Watching

    def stepped(self, event: events.Event, effects: Effects) -> None:
        self.rules.stepped(event, effects)

    def appended(self, changes: tuple[Change, ...], end_offset: int) -> None:
        self.rules.appended(changes, end_offset)

    def committed(self, stored: Stored) -> None:
        self.rules.committed(stored)

    def replied(self, asked: Asked, response: object) -> None:
        self.rules.replied(asked, response)

    def settled(self, event: events.Event) -> None:
        self.rules.settled(event)

    def unloaded(self) -> None:
        unanswered = [each.event for each in self.asked if not each.replies]
        if unanswered:
            raise Violation(f"never answered: {unanswered[:3]}")
        self.asked.clear()

    def loaded(self) -> None:
        self.rules.loaded()

    # Members

    def heartbeat(self) -> None:
        member = self.random.choice(self.members)
        if self._paused_until.get(member, 0) > self.shell.now_ms:
            return
        if member in self._awaited:  # It has lost its patience, and says everything again.
            member.told = None
        self._send(member.heartbeat(), member)

    def reconcile(self) -> None:
        self._reconcile(self.random.choice(self.members))

    def _reconcile(self, member: ConsumerMember) -> None:
        taken = member.target - member.owned
        self.rules.takes(member, taken)
        member.reconcile()

    def _send(self, sent: Sent, member: ConsumerMember | None) -> None:
        """It may get lost, come twice, or come again much later."""
        number = self._asked_count = self._asked_count + 1
        if member is not None:
            self._awaited[member] = number
        if self.random.random() < self._repeats and member is not None and member.says_nothing_new:
            self._late = [*self._late[1 - LATE_MAX :], sent]
        if self.random.random() >= self._loses / 2:
            self._ask(sent, (member, number))
        elif member is not None:
            member.told = None

    def _ask(self, sent: Sent, owner: object) -> None:
        make, version = sent
        self.asked.append(self.shell.ask(owner, version, make))

    def answer(self, asked: Asked, response: object) -> None:
        if not isinstance(asked.owner, tuple):
            return
        member, number = asked.owner
        if member is None or self._awaited.get(member) != number:
            return
        del self._awaited[member]
        if self.random.random() >= self._loses:
            member.hear(response)
        else:
            member.told = None

    def deliver_late(self) -> None:
        if self._late:
            self._ask(self._late.pop(self.random.randrange(len(self._late))), None)

    def pause(self) -> None:
        self._paused_until[self.random.choice(self.members)] = self.shell.now_ms + self.random.randint(1, 90_000)

    def restart(self) -> None:
        member = self.random.choice(self.members)
        self._awaited.pop(member, None)
        member.begin()

    def leave(self) -> None:
        member = self.random.choice(self.members)
        if member.epoch > 0:
            self._awaited.pop(member, None)
            self._send(member.leave(), None)

    def subscribe(self) -> None:
        self.random.choice(self.members).subscribe(self.some_topics())

    # The cluster, the log, time, the coordinator

    def change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        if self.random.random() < 0.3 and len(self.topics) > 1:
            self.topics.pop(name, None)
        else:
            known = self.topics.get(name)
            self._set_partitions(name, self.random.randint(1, 3) + (known.partitions_count if known else 0))
        self.shell.image = self._image()

    def _set_partitions(self, name: str, count: int) -> None:
        """A topic that is made again has another id."""
        known = self.topics.get(name)
        if known is None:
            self._topics_made += 1
        topic_id = topic_id_of(f"{name}{self._topics_made}") if known is None else known.id
        self.topics[name] = TestTopic(name, topic_id, count)

    def _image(self) -> TestImage:
        self._versions += 1
        return TestImage(tuple(self.topics.values()), self._versions, self._versions)

    def commit_log(self) -> None:
        self.shell.commit(self.shell.boundary())

    def wait_a_little(self) -> None:
        self._wait(self.random.choice((1, 100, 1_000, 3_000)))

    def wait_long(self) -> None:
        self._wait(self.random.randint(5_000, 80_000))

    def _wait(self, ms: int) -> None:
        self.shell.wait(ms)
        self.rules.look()

    def take_over(self) -> None:
        is_told = self.random.random() < 0.5
        self.shell.wall_skew_ms = self.random.randint(-2_000, 2_000)
        if not is_told:
            self.asked.clear()
        for member in self.members:
            member.told = None
        self.shell.take_over(is_told=is_told)
