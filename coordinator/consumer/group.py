"""One consumer group: its epochs, members, target assignment and regular expressions, as its records say.

    Empty ──join──▶ Assigning ──target computed──▶ Reconciling ──every member follows──▶ Stable
      ▲                 ▲                               │                                  │
      └───no member─────┴──── a subscription, a member or a topic changes: the group epoch grows

There are three epochs. The **group epoch** increases with each change. The **assignment epoch** is the group epoch for
which the target assignment was computed. The **member epoch** is the assignment epoch that a member has reached. A
member gets a partition when no other member owns it (`reconciliation.py`).

The group changes only when its records are replayed (`replay.py`). So a group that is loaded from its log equals the
group that wrote it. Only `seen_image` and `seen_epoch` are not in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.coordinator.consumer.assignors import NOTHING, Assignment
from moldau.coordinator.consumer.member import ConsumerMember, pattern_of
from moldau.coordinator.consumer.records import group_tombstones
from moldau.coordinator.group.group import GroupStep, TimerKey, TimerKind
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.coordinator.group.membership import FIRST_EPOCH
from moldau.coordinator.group.records import Change
from moldau.protocol.errors import ErrorCode

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ConsumerTimer(TimerKind):
    SESSION = auto()
    """The session timeout of a member."""
    REBALANCE = auto()
    """The time in which a member must revoke partitions."""
    JOIN = auto()
    """The time in which a member of the classic protocol must rejoin."""
    SYNC = auto()
    """The time in which a member of the classic protocol must fetch its assignment."""
    RESOLUTION = auto()
    """The longest time of a resolution of the group's regular expressions. While the timer runs, no other resolution
    begins."""
    TARGET = auto()
    """The timer runs while a thread computes the target assignment of the group."""


class ConsumerGroupState(Enum):
    """The states of a consumer group. The values are Kafka's names in the protocol."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """The metadata offset of the image in which the topics were searched."""
    resolved_ms: int
    """The time at which the resolution began (wall clock, ms)."""


class Subscriptions(NamedTuple):
    """The topics to which the members of a group subscribe, counted. All counts are positive."""

    by_name: Counter[str]
    """The number of members that subscribe to each topic by its name."""
    by_regex: Counter[str]
    """The number of resolved regular expressions that match each topic."""
    regexes: Counter[str]
    """The number of members that use each regular expression."""

    @property
    def topics(self) -> Collection[str]:
        return self.by_name.keys() | self.by_regex.keys()

    def is_homogeneous(self, members_count: int) -> bool:
        """Whether all members have the same subscription, by Kafka's rule. Either no member uses a regular expression,
        and every subscribed topic is named by all members. Or all members use the same regular expression, and none
        subscribes by name.
        """
        if not self.regexes:
            return all(self.by_name[topic] == members_count for topic in self.topics)
        return (
            next(iter(self.regexes.values())) == members_count
            and not self.by_name
            and all(count == 1 for count in self.by_regex.values())
        )


class ConsumerGroup:
    """A group of the consumer protocol; it implements `moldau.coordinator.group.group.Group`."""

    type_name = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    is_simple = False

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.visible_from: int | None = None
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """The hash of the subscribed topics at the group epoch (`metadata_hash.py`)."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        """The time at which the target assignment was computed (wall clock, ms); 0 if it is unknown or no target was
        computed."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        """The target assignment by member id."""
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.resolved: dict[str, ResolvedRegex] = {}
        """The resolved regular expressions, with the topics that they match."""
        self.subscriptions = Subscriptions(Counter(), Counter(), Counter())
        self.assignors: Counter[str] = Counter()
        """The number of members that prefer each assignor."""
        self.classic_protocols: Counter[str] = Counter()
        """The number of members of the classic protocol that support each of its protocols."""
        self.classic_members_count = 0
        self.has_partition_metadata = False
        """Whether the log has a PartitionMetadata record of the group, which releases before 4.1 wrote. The next hash
        of the subscribed topics removes the record."""
        self.seen_image: int | None = None
        """The version of the metadata at which the subscribed topics were last hashed. It is not in the log, so the
        next coordinator hashes the topics again."""
        self.seen_epoch = 0
        """The group epoch after the hash at `seen_image`."""
        self._owners: dict[bytes, dict[int, str]] = {}
        """The member that owns each partition, by topic id and index."""

    # What all kinds of groups have

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def timers(self) -> Collection[TimerKey]:
        return [TimerKey(kind, self.group_id, member_id) for member_id in ("", *self.members) for kind in ConsumerTimer]

    def deletion_error(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def offset_deletion_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.by_name or topic in self.subscriptions.by_regex

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    def tombstones(self) -> list[Change]:
        return [*group_tombstones(self.group_id, self.members, self.resolved)]

    # Looking at members

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def has_room(self, limit: int, member_id: str, instance_id: str | None) -> bool:
        """Whether a group of at most `limit` members admits the member. A member that takes the place of a static
        member needs no further room.

        DIVERGES: a full group of Apache Kafka 4.3.1 refuses it, and the static member cannot restart until the session
        of its former self ends (KAFKA-20601, mended after 4.3.1).
        """
        return len(self.members) < limit or member_id in self.members or instance_id in self.static_members

    def target_of(self, member: ConsumerMember) -> Assignment:
        """The target assignment of a member. A static member that has just joined under a new id has the target of the
        member that it replaces."""
        if member.instance_id is None:
            return self.targets.get(member.member_id, NOTHING)
        return self.targets.get(self.static_members.get(member.instance_id, ""), NOTHING)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether any member owns the partition. A partition that a member still has to revoke is owned."""
        return partition in self._owners.get(topic_id, ())

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Whether another member owns a partition of this member's target that this member does not have yet."""
        return any(
            partition not in member.assigned.get(topic_id, ()) and self.is_owned(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, NOTHING).items()
            for partition in partitions
        )

    def has_seen(self, image: CoordinatorImage) -> bool:
        """Whether the subscribed topics were hashed with this version of the metadata, and the record of the resulting
        group epoch was stored."""
        return self.seen_image == image.version and self.epoch >= self.seen_epoch

    def note_seen(self, image: CoordinatorImage, epoch: int) -> None:
        """Note that the subscribed topics were hashed with this version of the metadata. `epoch` is the group epoch
        that resulted."""
        self.seen_image, self.seen_epoch = image.version, epoch

    def subscriptions_with(self, member: ConsumerMember | None, updated: ConsumerMember | None) -> Subscriptions:
        """The subscriptions after `member` becomes `updated`. `member` is None if `updated` is a new member; `updated`
        is None if `member` leaves."""
        by_name, by_regex, regexes = (Counter(counts) for counts in self.subscriptions)
        _recount(by_name, _topics(member), _topics(updated))
        old, new = pattern_of(member), pattern_of(updated)
        if old is not None and old != new and self.subscriptions.regexes[old] == 1 and old in self.resolved:
            _recount(by_regex, self.resolved[old].topics, ())
        _recount(regexes, _patterns(member), _patterns(updated))
        return Subscriptions(by_name, by_regex, regexes)

    def preferred_assignor(
        self, default: str, member: ConsumerMember | None = None, updated: ConsumerMember | None = None
    ) -> str:
        """The assignor that most members prefer, after `member` becomes `updated`; `default` if no member has a
        preference. If two are preferred equally often, `uniform` comes before `range`, as in Apache Kafka.
        """
        counts = Counter(self.assignors)
        _recount(counts, _assignors(member), _assignors(updated))
        return max(sorted(counts, reverse=True), key=counts.__getitem__, default=default)

    # Replaying

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member, or replace the value of an existing member, and update the counts and the owners of
        partitions."""
        former = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(former, member)
        if former is None or (former.assigned, former.revoking) != (member.assigned, member.revoking):
            self._release(former)
            for partitions in (member.assigned, member.revoking):
                for topic_id, epochs in partitions.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member.member_id))
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        former = self.members.pop(member_id)
        self._count(former, None)
        self._release(former)
        if former.instance_id is not None and self.static_members.get(former.instance_id) == member_id:
            del self.static_members[former.instance_id]

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Store the topics that a regular expression matches. If `resolved` is None, remove the expression, which no
        member uses any more."""
        former = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        _recount(
            self.subscriptions.by_regex,
            () if former is None else former.topics,
            () if resolved is None else resolved.topics,
        )

    def _count(self, former: ConsumerMember | None, member: ConsumerMember | None) -> None:
        if former is not None and member is not None and former.asks_the_same(member):
            return
        _recount(self.subscriptions.by_name, _topics(former), _topics(member))
        _recount(self.subscriptions.regexes, _patterns(former), _patterns(member))
        _recount(self.assignors, _assignors(former), _assignors(member))
        _recount(self.classic_protocols, _protocols(former), _protocols(member))
        self.classic_members_count += _is_classic(member) - _is_classic(former)

    def _release(self, member: ConsumerMember | None) -> None:
        for partitions in () if member is None else (member.assigned, member.revoking):
            for topic_id, epochs in partitions.items():
                owners = self._owners.get(topic_id, {})
                for partition in epochs:
                    if member is not None and owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)


def _topics(member: ConsumerMember | None) -> Iterable[str]:
    return () if member is None else member.subscribed_topics


def _patterns(member: ConsumerMember | None) -> Iterable[str]:
    pattern = pattern_of(member)
    return () if pattern is None else (pattern,)


def _assignors(member: ConsumerMember | None) -> Iterable[str]:
    return () if member is None or not member.assignor else (member.assignor,)


def _protocols(member: ConsumerMember | None) -> Iterable[str]:
    return () if member is None or member.classic is None else [name for name, _ in member.classic.protocols]


def _is_classic(member: ConsumerMember | None) -> bool:
    return member is not None and member.classic is not None


def _recount(counts: Counter[str], gone: Iterable[str], come: Iterable[str]) -> None:
    """Decrement the counts of the names in `gone`, and increment those in `come`. Names with a count of 0 are
    removed."""
    for name in gone:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]
    for name in come:
        counts[name] += 1


def settings_of(step: GroupStep, group_id: str) -> ConsumerGroupSettings:
    """The consumer group settings of a group: the broker's settings, overridden by the group's configuration."""
    return step.config.consumer.of_group(step.image.group_settings(group_id))
