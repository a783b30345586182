"""Random members of two consumer groups (KIP-848)."""

from __future__ import annotations

import re
from random import Random
from typing import Any, Final

from moldau.coordinator.consumer.events import RegexesResolved, ResolveRegexes
from moldau.coordinator.group.config import GroupConfig
from tests.simulation.groups.consumer_member import ConsumerMember
from tests.simulation.groups.consumer_rules import ConsumerRules
from tests.simulation.groups.heartbeat_swarm import AT_ONCE, GROUPS, TOPICS, HeartbeatSwarm, Topics

REGEXES: Final = ("t", "[tu]", "u|v", ".*", "w.*")
LATE_TOPIC: Final = "w"
"""A topic that nobody names, and some regular expressions match."""


class ConsumerSwarm(HeartbeatSwarm[ConsumerMember]):
    def __init__(self, seed: int, target_size_at_once: int = AT_ONCE) -> None:
        random = Random(f"{seed}/consumer groups")
        topics = Topics(random, TOPICS)
        self.members = [
            ConsumerMember(
                f"c{number}",
                random.choice((*GROUPS, GROUPS[0])),
                topics.some(),
                random,
                f"s{number}" if random.random() < 0.3 else None,
            )
            for number in range(random.randint(2, 6))
        ]
        self._patterns = Random(f"{seed}/regular expressions")
        for member in self.members:
            member.regex = self._regex()
        self.consumer_rules = ConsumerRules(self.members)
        super().__init__(random, topics, self.consumer_rules, GroupConfig(target_size_at_once=target_size_at_once))
        self._commits = 0
        self.steps = [
            *self.steps,
            (self.reconcile, 40),
            (self.subscribe, random.choice((0, 2, 4))),
            (self.claim, random.choice((0, 2))),
            (self.resolve, 10),
            (self.commit, random.choice((0, 10))),
            (self.commit_late, random.choice((0, 4))),
        ]
        self._former: list[tuple[ConsumerMember, int]] = []
        """Members with epochs that they had."""
        self._searches: list[ResolveRegexes] = []

    def _regex(self) -> str:
        return self._patterns.choice(REGEXES) if self._patterns.random() < 0.3 else ""

    # The search for topics, which is carried out late, or whose outcome gets lost

    def take_command(self, command: Any) -> None:
        assert isinstance(command, ResolveRegexes)
        self._searches.append(command)

    def loaded(self) -> None:
        super().loaded()
        self._searches.clear()

    def resolve(self) -> None:
        if not self._searches:
            return
        search = self._searches.pop(self.random.randrange(len(self._searches)))
        if self.random.random() >= 0.1:
            self._report(search)

    def _report(self, search: ResolveRegexes) -> None:
        names = search.image.topic_names()
        topics = {regex: frozenset(name for name in names if re.fullmatch(regex, name)) for regex in search.regexes}
        begun_ms = self.stage.wall_ms - self.random.choice((0, 0, 2_000))
        self.stage.step(RegexesResolved(search.group_id, topics, search.image.version, begun_ms))

    def end(self) -> None:
        """The groups settle; then one more topic comes, and nothing else that would let the regular expressions be
        resolved again.
        """
        super().end()
        self.topics.set_partitions(LATE_TOPIC, 2)
        self.stage.image = self.topics.image()
        super().end()

    # Members

    def follow(self, member: ConsumerMember) -> bool:
        while self._searches:
            self._report(self._searches.pop(0))
        if member.owned == member.target:
            return False
        self._reconcile(member)
        return True

    def why_unsettled(self) -> str:
        return self.consumer_rules.is_settled(self.topics.partitions())

    def reconcile(self) -> None:
        self._reconcile(self.random.choice(self.members))

    def _reconcile(self, member: ConsumerMember) -> None:
        taken = member.target - member.owned
        self.consumer_rules.takes(member, taken)
        member.reconcile()

    def subscribe(self) -> None:
        self.random.choice(self.members).subscribe(self.topics.some(), self._regex())

    def claim(self) -> None:
        """A member says with the epoch before its own that it owns everything: it must be fenced."""
        member = self.random.choice(self.members)
        place = self.consumer_rules.group(member.group_id).places.get(member.member_id)
        everything = frozenset().union(*self.topics.partitions().values())
        if place is not None and 0 < place.previous_epoch < place.epoch and everything - place.assigned:
            self.ask(member.claim(place.previous_epoch, everything), None)

    def commit(self) -> None:
        """Of a partition that the member owns, with its epoch."""
        member = self.random.choice(self.members)
        names = {topic.id: topic.name for topic in self.topics.by_name.values()}
        owned = sorted((names[topic_id], index) for topic_id, index in member.owned if topic_id in names)
        if owned:
            self._commits += 1
            self.ask(member.commit(*self.random.choice(owned), self._commits), None)
            self._former = [*self._former[-4:], (member, member.epoch)]

    def commit_late(self) -> None:
        """With an epoch that the member had, of a partition that it may have or not."""
        if self._former:
            member, epoch = self.random.choice(self._former)
            current, member.epoch = member.epoch, epoch
            self._commits += 1
            topic = self.random.choice(list(self.topics.by_name))
            self.ask(member.commit(topic, self.random.randint(0, 3), self._commits), None)
            member.epoch = current
