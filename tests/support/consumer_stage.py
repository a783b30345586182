"""A shard of the group coordinator with consumer groups on a stage, and a cluster with topics.

Every answer is checked: a new shard that loads the log has the same groups, and no partition has two owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moldau.coordinator.classic.events import AnswerHeartbeats
from moldau.coordinator.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.regular_expressions import matching_topics
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.description import GroupDescription
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.runtime.machine import Loaded
from moldau.coordinator.shard.kinds import change_of
from moldau.protocol.messages.consumer_group_describe import DescribedGroup
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.protocol.record_builder import Record
from tests.support.group_stage import GroupStage
from tests.support.machine_stage import Batch
from tests.support.topics_image import TestImage, TestTopic

GROUP_ID = "g"
CLIENT = object()


def stage_image(version: int, counts: Mapping[str, int], settings: Mapping[str, str]) -> TestImage:
    """Topics by name, each with the id of its name's first letter 16 times."""
    topics = tuple(TestTopic(name, id_of(name), count) for name, count in counts.items())
    return TestImage(topics, version, version, settings)


def id_of(name: str) -> bytes:
    return name[:1].encode() * 16


class ConsumerStage(GroupStage):
    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        config: GroupConfig | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`counts`: the topics with their numbers of partitions. `settings`: those of every group, by Kafka's names."""
        self.settings = settings or {}
        self.written: list[str] = []
        """The types of the records of the last event."""
        super().__init__(config, stage_image(1, counts or {"a": 4}, self.settings))
        self.step(Loaded())

    def topics(self, **counts: int) -> None:
        """The topics of the cluster from now on."""
        self.image = stage_image(self.image.version + 1, counts, self.settings)

    # Checked

    def step(self, event: object) -> None:
        self.written = []
        super().step(event)
        self.check()

    def appended(self, batch: Batch, cause: object) -> None:
        self.written += [type_of(record) for record in batch.records]

    def check(self) -> None:
        """The groups are those of the log, and no partition has two owners."""
        assert snapshot(self.loaded_copy().group(GROUP_ID)) == snapshot(self.shard.group(GROUP_ID))
        group = self.shard.group(GROUP_ID)
        if isinstance(group, ConsumerGroup):
            check_owners(group)

    # Requests

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.group(GROUP_ID)
        assert isinstance(group, ConsumerGroup)
        return group

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        version: int = 1,
        owned: Mapping[str, Iterable[int]] | None = None,
        topics: list[str] | None = None,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """`owned` has partitions by topic name."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        for name, value in fields.items():
            setattr(request, name, value)
        if owned is not None:
            request.topic_partitions = [
                TopicPartitions(topic_id=id_of(name), partitions=[*indexes]) for name, indexes in owned.items()
            ]
        event = ConsumerHeartbeat(self.waiter(version), request, "client", "/host", f"fresh-{self.token}", CLIENT)
        response = self.ask(event)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join(self, member_id: str, topics: list[str] | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        named = ["a"] if topics is None and "subscribed_topic_regex" not in fields else topics
        fields = {"rebalance_timeout_ms": 30_000, **fields}
        return self.heartbeat(member_id, 0, owned={}, topics=named, **fields)

    def stay(self, member_id: str, owned: Mapping[str, Iterable[int]] | None = None) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat with the member's own epoch."""
        return self.heartbeat(member_id, self.group.members[member_id].epoch, owned=owned)

    def settle(self, rounds: int = 8) -> None:
        """All members send heartbeats, and own what they are given, until nothing changes."""
        for _ in range(rounds):
            self.now_ms += self.config.consumer.assignment_interval_ms
            for member_id, member in [*self.group.members.items()]:
                names = {
                    topic.id: topic.name for topic in map(self.image.topic_of_name, self.image.topic_names()) if topic
                }
                owned = {names[topic]: [*epochs] for topic, epochs in member.assigned.items() if topic in names}
                self.heartbeat(member_id, member.epoch, owned=owned)
        assert self.group.state.value == "Stable"

    def commit_event(self, member_id: str, epoch: int, topic: str, partition: int, version: int = 9) -> CommitOffsets:
        asked = OffsetCommitRequestTopic(
            name=topic, partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=5)]
        )
        request = OffsetCommitRequest(
            group_id=GROUP_ID, generation_id_or_member_epoch=epoch, member_id=member_id, topics=[asked]
        )
        return CommitOffsets(self.waiter(version), request)

    def commit(self, member_id: str, epoch: int, topic: str, partition: int, version: int = 9) -> int:
        """The error of a commit."""
        response = self.ask(self.commit_event(member_id, epoch, topic, partition, version))
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    def commit_in_transaction(self, member_id: str, epoch: int, topic: str, partition: int, version: int) -> int:
        """The error of a commit within a transaction."""
        asked = TxnOffsetCommitRequestTopic(
            name=topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=5)]
        )
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=GROUP_ID,
            producer_id=7,
            producer_epoch=0,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[asked],
        )
        response = self.ask(CommitTransactionalOffsets(self.waiter(version), request))
        assert isinstance(response, TxnOffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    def describe(self) -> DescribedGroup:
        response = self.ask(DescribeConsumerGroup(self.waiter(1), GROUP_ID))
        whole = response.whole() if isinstance(response, GroupDescription) else response
        assert isinstance(whole, DescribedGroup)
        return whole

    def resolve(self) -> bool:
        """Carry out the next command to resolve regular expressions; False if there is none."""
        # Held heartbeats are the broker's.
        self.commands = [each for each in self.commands if not isinstance(each, AnswerHeartbeats)]
        if not self.commands:
            return False
        command = self.commands.pop(0)
        assert isinstance(command, ResolveRegexes)
        topics = matching_topics(command.regexes, command.image.topic_names())
        self.step(RegexesResolved(command.group_id, topics, command.image.version, self.wall_ms))
        return True


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The partitions of an answer by the first letter of the topic; None if the answer has no assignment."""
    if response.assignment is None:
        return None
    return {topic.topic_id[:1].decode(): sorted(topic.partitions) for topic in response.assignment.topic_partitions}


def type_of(record: Record) -> str:
    """The name of a record's type, with a minus for a tombstone."""
    change = change_of(record)
    if not isinstance(change, RecordChange):
        return type(change).__name__
    name = type(change.key).__name__.removesuffix("Key")
    return name if change.value is not None else f"-{name}"


def snapshot(group: Group | None) -> object:
    """What the log says about a consumer group; None for any other group."""
    if not isinstance(group, ConsumerGroup):
        return None
    return (
        (group.epoch, group.metadata_hash, group.assignment_epoch, group.assignment_ms, group.classic_members_count),
        group.members,
        group.targets,
        group.static_members,
        group.resolved,
        group.subscriptions,
        (group.assignors, group.classic_protocols, group.has_partition_metadata),
    )


def check_owners(group: ConsumerGroup) -> None:
    owners: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for partitions in (member.assigned, member.revoking):
            for topic, epochs in partitions.items():
                for partition in epochs:
                    other = owners.setdefault((topic, partition), member.member_id)
                    assert other == member.member_id, f"{topic!r}-{partition} has two owners"
                    assert group.is_owned(topic, partition)
