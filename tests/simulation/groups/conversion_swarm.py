"""One group of consumers whose members change between the classic and the consumer protocol, each by itself.

A seed draws `group.consumer.migration.policy`, whether the members of the classic protocol are eager or cooperative,
and how the log behaves. In the end all members are of one protocol, or stay mixed if the
policy allows it, and the group settles.
"""

from __future__ import annotations

from random import Random
from typing import Final

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings, MigrationPolicy
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tests.simulation.groups.classic_member import ClassicMember
from tests.simulation.groups.client import Sent
from tests.simulation.groups.consumer_member import ConsumerMember, Owned, commit_of
from tests.simulation.groups.conversion_rules import UPGRADES, ConversionRules
from tests.simulation.groups.heartbeat_swarm import TOPICS, Topics
from tests.simulation.groups.log_rules import all_of
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.coordinator_swarm import CoordinatorSwarm
from tests.support.drawn_stage import Asked, Manners
from tests.support.drawn_steps import Violation, Weighted

GROUP: Final = "g"
QUIET_ROUNDS: Final = 60
ROUND_MS: Final = 3_000
PATIENCE_MS: Final = 70_000
"""After this time a member asks again."""


class Consumer:
    """A consumer that is a member by one protocol or the other, a process at a time."""

    def __init__(self, classic: ClassicMember, modern: ConsumerMember, *, is_classic: bool) -> None:
        self.classic = classic
        self.modern = modern
        self.is_classic = is_classic
        self.asked = 0
        """The number of what it asked last; 0: it waits for no answer."""
        self.asked_ms = 0
        self.slow_until_ms = 0
        """Until then it says that it lives, and neither rejoins nor fetches its assignment."""
        self.is_behind = False
        """Whether the group need not know what it owns. It was removed, and has not learned yet what it owns as a
        member again; a member of the classic protocol that joins with its former id learns so only with its assignment.
        Or the group turned twice before it rejoined: as in Apache Kafka 4.3.1, a group that becomes a classic one keeps
        what each member was to have, and not what it had.
        """

    @property
    def member_id(self) -> str:
        return self.classic.member_id if self.is_classic else self.modern.member_id

    @property
    def topics(self) -> list[str]:
        return self.modern.topics

    def change_protocol(self) -> None:
        """A new process, of the other protocol."""
        self.is_classic = not self.is_classic
        self.begin()

    def begin(self) -> None:
        """A new process."""
        self.asked = 0
        self.is_behind = False
        self.classic.begin()
        self.modern.begin()


class ConversionSwarm(CoordinatorSwarm):
    stage: DrawnGroupStage

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/conversions")
        super().__init__(random)
        self.policy = random.choice((*MigrationPolicy, MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.BIDIRECTIONAL))
        self.topics = Topics(random, TOPICS)
        self.topics.may_go = False
        interval_ms = random.choice((0, 1_000))
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            consumer=ConsumerGroupSettings(migration_policy=self.policy, assignment_interval_ms=interval_ms),
        )
        self.stage = DrawnGroupStage(random, self, config, self.topics.image())
        self.rules = ConversionRules(self.stage, self.policy)
        self.watchers = (self.rules,)
        is_eager, is_classic = random.random() < 0.5, random.random() < 0.7
        self.consumers = [
            self._consumer(number, is_eager=is_eager, is_classic=is_classic) for number in range(random.randint(2, 5))
        ]
        self.draw_manners()
        self.loses = random.choice((0.0, 0.05))
        self._asked_count = self._commits = 0
        self.steps: Weighted = [
            (self.act, 100),
            (self.wait_a_little, 60),
            (self.wait_long, random.choice((0, 1, 3))),
            (self.commit_log, 20),
            (self.change_protocol, random.choice((2, 5))),
            (self.restart, random.choice((0, 2))),
            (self.slow_down, random.choice((0, 2))),
            (self.change_topics, random.choice((0, 1))),
            (self.commit, 10),
            (self.take_over, random.choice((0, 1, 3))),
            (self.stage.compare, 2),
        ]

    def _consumer(self, number: int, *, is_eager: bool, is_classic: bool) -> Consumer:
        topics = self.topics.some()
        classic = ClassicMember(f"c{number}", GROUP, topics, self.random, None, is_eager=is_eager, sizes=self._sizes)
        return Consumer(classic, ConsumerMember(f"m{number}", GROUP, topics, self.random, None), is_classic=is_classic)

    def _sizes(self) -> dict[str, int]:
        return {topic.name: topic.partitions_count for topic in self.topics.by_name.values()}

    # The story

    def end(self) -> None:
        self.stage.manners = Manners()
        self.loses = 0.0
        self.stage.commit_log()
        stays_mixed = self.policy in UPGRADES and self.random.random() < 0.5
        is_classic = self.random.random() < 0.5
        for consumer in self.consumers:
            consumer.asked = consumer.slow_until_ms = 0
            if not stays_mixed and consumer.is_classic is not is_classic:
                self._leave(consumer)
                consumer.change_protocol()
            consumer.modern.say_everything()
            consumer.classic.is_joined = consumer.classic.is_synced = False
        why = ""
        for _ in range(QUIET_ROUNDS):
            for _ in range(3):
                for consumer in self.consumers:
                    self._act(consumer)
                    self._reconcile(consumer)
            self.wait(ROUND_MS)
            why = self.why_unsettled()
            if not why:
                self.stage.compare()
                self.rules.check_offsets(self._offsets())
                return
        raise Violation(f"after {QUIET_ROUNDS} quiet rounds: {why}")

    def why_unsettled(self) -> str:
        group = self.stage.shard.group(GROUP)
        if not isinstance(group, (ClassicGroup, ConsumerGroup)):
            return f"there is {group}"
        if group.members.keys() != {consumer.member_id for consumer in self.consumers}:
            return f"the {group.type_name} group has {sorted(group.members)}"
        owned = [self.owned(consumer) for consumer in self.consumers]
        for consumer, each in zip(self.consumers, owned, strict=True):
            wanted = self._wanted(consumer)
            if each - wanted:
                return f"{consumer.member_id} owns {sorted(each - wanted)}, to which it is not subscribed"
        missing = frozenset().union(*map(self._wanted, self.consumers)) - frozenset().union(*owned)
        if missing or sum(map(len, owned)) > len(frozenset().union(*owned)):
            return f"of the {group.type_name} group no member has {sorted(missing)}, or two have one of {owned}"
        return ""

    def _wanted(self, consumer: Consumer) -> Owned:
        partitions = self.topics.partitions()
        return frozenset().union(*(partitions.get(topic, frozenset()) for topic in consumer.topics))

    def owned(self, consumer: Consumer) -> Owned:
        if not consumer.is_classic:
            return consumer.modern.owned
        ids = {topic.name: topic.id for topic in self.topics.by_name.values()}
        return frozenset((ids[name], index) for name, index in consumer.classic.owned)

    def _offsets(self) -> dict[tuple[str, int], int]:
        answer = all_of(self.stage.shard.offsets(OffsetFetchRequestGroup(group_id=GROUP, topics=None)))
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        }

    # Watching

    def settled(self, event: events.Event) -> None:
        before, former = self.rules.members, self.rules.group
        super().settled(event)
        has_turned_twice = (
            isinstance(former, ClassicGroup)
            and isinstance(self.rules.group, ConsumerGroup)
            and former.generation == self.rules.downgraded_generation
        )
        for consumer in self.consumers:
            consumer.is_behind |= consumer.member_id in before - self.rules.members or has_turned_twice

    # Members

    def act(self) -> None:
        self._act(self.random.choice(self.consumers))

    def _act(self, consumer: Consumer) -> None:
        if consumer.asked and self.stage.now_ms < consumer.asked_ms + PATIENCE_MS:
            return
        if consumer.is_classic:
            member = consumer.classic
            if consumer.asked:
                member.is_joined = False
            is_slow = self.stage.now_ms < consumer.slow_until_ms and member.generation > 0
            self._send(member.heartbeat() if is_slow else member.next_request(), consumer)
        else:
            self._reconcile(consumer)
            self._send(consumer.modern.heartbeat(), consumer)

    def _reconcile(self, consumer: Consumer) -> None:
        member = consumer.modern
        if not consumer.is_classic and member.owned != member.target:
            taken = member.target - member.owned
            member.reconcile()
            self._takes(consumer, taken)

    def _send(self, sent: Sent, consumer: Consumer) -> None:
        make, version = sent
        self._asked_count += 1
        consumer.asked, consumer.asked_ms = self._asked_count, self.stage.now_ms
        if self.random.random() >= self.loses:
            self.rules.asked(self.stage.send((consumer, consumer.asked), version, make))

    def answer(self, asked: Asked, response: object) -> None:
        if not isinstance(asked.owner, tuple):
            return
        consumer, number = asked.owner
        if consumer.asked != number:
            return
        if self.random.random() < self.loses:
            return
        consumer.asked = 0
        if consumer.is_classic:
            before = self.owned(consumer)
            consumer.classic.hear(response)
            consumer.is_behind &= not consumer.classic.is_synced and bool(consumer.classic.owned)
            self._takes(consumer, self.owned(consumer) - before)
        else:
            consumer.modern.hear(response)
            consumer.is_behind &= bool(consumer.modern.owned)

    def _takes(self, consumer: Consumer, taken: Owned) -> None:
        """No other member owns what a member begins to own."""
        group = self.stage.shard.group(GROUP)
        members = group.members if isinstance(group, (ClassicGroup, ConsumerGroup)) else {}
        if consumer.member_id not in members:
            return  # It does not know yet that it was removed.
        for other in self.consumers:
            both = self.owned(other) & taken
            counts = other is not consumer and other.member_id in members and not other.is_behind
            if counts and both:
                raise Violation(f"{consumer.member_id} and {other.member_id} own {sorted(both)}")

    def change_protocol(self) -> None:
        consumer = self.random.choice(self.consumers)
        if self.random.random() < 0.7:
            self._leave(consumer)
        consumer.change_protocol()

    def restart(self) -> None:
        consumer = self.random.choice(self.consumers)
        consumer.begin()

    def slow_down(self) -> None:
        self.random.choice(self.consumers).slow_until_ms = self.stage.now_ms + self.random.randint(5_000, 60_000)

    def _leave(self, consumer: Consumer) -> None:
        if consumer.is_classic:
            if consumer.classic.member_id and consumer.classic.instance is None:
                make, version = consumer.classic.leave()
                self.stage.send(None, version, make)
        elif consumer.modern.epoch > 0:
            make, version = consumer.modern.leave()
            self.stage.send(None, version, make)

    def commit(self) -> None:
        """Of a partition that a member owns, with its epoch or generation."""
        consumer = self.random.choice(self.consumers)
        names = {topic.id: topic.name for topic in self.topics.by_name.values()}
        owned = sorted((names[topic_id], index) for topic_id, index in self.owned(consumer))
        if owned:
            self._commits += 1
            epoch = consumer.classic.generation if consumer.is_classic else consumer.modern.epoch
            topic, index = self.random.choice(owned)
            make, version = commit_of(GROUP, consumer.member_id, epoch, topic, index, self._commits)
            self.stage.send(None, version, make)

    # The cluster, time, the coordinator

    def change_topics(self) -> None:
        self.topics.change()
        self.stage.image = self.topics.image()

    def wait(self, ms: int) -> None:
        super().wait(ms)
        self.rules.look()

    def take_over(self) -> None:
        is_told = self.random.random() < 0.5
        self.stage.wall_skew_ms = self.random.randint(-2_000, 2_000)
        for consumer in self.consumers:
            consumer.modern.say_everything()
            if not is_told:
                consumer.asked = 0
        self.stage.compare()
        self.stage.take_over(is_told=is_told)
