"""A member of a consumer group: its subscription, and the state of its reconciliation with the target assignment.

The coordinator moves each member on its own from the partitions that it has to those of the target assignment:

    Stable ──new target: some partitions must go──▶ UnrevokedPartitions
      ▲ │                                                   │ the member reports that it owns them no longer
      │ └──new target: some partitions are not free──┐      ▼
      │                                              ├── the next step towards the target
      └──all partitions are given──  UnreleasedPartitions ◀─┘ some partitions still belong to other members

* **Stable**: the member has all partitions of the assignment of its epoch.
* **UnrevokedPartitions**: the member keeps its epoch until it has revoked the partitions, for at most its rebalance
  timeout; then it is removed from the group.
* **UnreleasedPartitions**: the member has the epoch of the target, and gets the missing partitions one by one as other
  members release them.

A member is an immutable value. It is replaced when its records are replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from moldau.protocol.records.consumer_groups import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

PartitionEpochs: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""The partitions of a member: by topic id and partition index, the epoch in which the member got the partition. A
member may commit offsets of a partition with that epoch or any later one (KIP-1251)."""
NO_PARTITIONS: Final[PartitionEpochs] = {}


class MemberState(IntEnum):
    """The state of a member's reconciliation with the target assignment. The numbers are those in the member's
    ConsumerGroupCurrentMemberAssignment record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """A state that a later release wrote. The member must rejoin."""


KNOWN_STATES: Final = frozenset(MemberState)


class ClassicMember(NamedTuple):
    """The data in the JoinGroup request of a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """The names of the member's protocols with its subscriptions (encoded), in the member's order of preference."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str | None = ""
    """The regular expression (RE2) to which the member subscribes; empty or None if it uses none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    """The assignor that the member prefers."""
    classic: ClassicMember | None = None
    """The fields of a member of the classic protocol; None if the member uses the consumer protocol."""
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    revoking: PartitionEpochs = field(default_factory=dict)
    """The partitions that the member must revoke. Until it has, the member still owns them."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def asks_the_same(self, other: ConsumerMember) -> bool:
        """Whether `other` is a value of this member with the same subscription, assignor and protocols. The topics and
        the classic protocols are compared by identity."""
        return (
            self.subscribed_topics is other.subscribed_topics
            and self.subscribed_regex == other.subscribed_regex
            and self.assignor == other.assignor
            and self.classic is other.classic
        )

    def owned_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the member got a partition that it owns; None if it does not own the partition."""
        for partitions in (self.assigned.get(topic_id), self.revoking.get(topic_id)):
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None


def pattern_of(member: ConsumerMember | None) -> str | None:
    """The regular expression of a member; None if it uses none, or if there is no member."""
    return (member.subscribed_regex or None) if member is not None else None


# The records of a member


def metadata_value(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    """The value of the record with the member's subscription and client."""
    classic = member.classic and ClassicMemberMetadata(
        session_timeout_ms=member.classic.session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.classic.protocols],
    )
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )


def with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    protocols = [] if classic is None else classic.supported_protocols
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topics=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None if classic is None else ClassicMember(classic.session_timeout_ms, _pairs(protocols)),
    )


def _pairs(protocols: Iterable[ClassicProtocol]) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in protocols)


def assignment_value(member: ConsumerMember) -> ConsumerGroupCurrentMemberAssignmentValue:
    """The value of the record with the member's epoch and partitions."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_written(member.assigned),
        partitions_pending_revocation=_written(member.revoking),
    )


def with_assignment(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in KNOWN_STATES else MemberState.UNKNOWN,
        assigned=_read(value.assigned_partitions, value.member_epoch),
        revoking=_read(value.partitions_pending_revocation, value.member_epoch),
    )


def _written(partitions: PartitionEpochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in partitions.items()
    ]


def _read(topics: Iterable[TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """Decode the partitions of a record, with the epoch in which the member got each partition. Records of releases
    before 4.3 have no such epochs. For them the member's own epoch is taken, because the member got its partitions in
    that epoch at the latest. The same is done if the number of epochs is not that of the partitions. A static member
    that is away has the epoch 0."""
    epoch = max(member_epoch, 0)
    read: dict[bytes, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [epoch] * len(topic.partitions)
        read[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return read
