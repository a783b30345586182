"""Random members of two consumer groups (KIP-848)."""

from __future__ import annotations

from random import Random

from moldau.coordinator.group.config import GroupConfig
from tests.simulation.groups.consumer_member import ConsumerMember
from tests.simulation.groups.consumer_rules import ConsumerRules
from tests.simulation.groups.heartbeat_swarm import GROUPS, TOPICS, HeartbeatSwarm, Topics


class ConsumerSwarm(HeartbeatSwarm[ConsumerMember]):
    def __init__(self, seed: int) -> None:
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
        self.consumer_rules = ConsumerRules(self.members)
        super().__init__(random, topics, self.consumer_rules, GroupConfig())
        self._commits = 0
        self.steps = [
            *self.steps,
            (self.reconcile, 40),
            (self.subscribe, random.choice((0, 2, 4))),
            (self.claim, random.choice((0, 2))),
            (self.commit, random.choice((0, 10))),
            (self.commit_late, random.choice((0, 4))),
        ]
        self._former: list[tuple[ConsumerMember, int]] = []
        """Members with epochs that they had."""

    def follow(self, member: ConsumerMember) -> bool:
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
        self.random.choice(self.members).subscribe(self.topics.some())

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
