"""A shard of consumer groups on a stage: a log that accepts and commits at once, a clock, and a cluster with topics.

Every answer is checked: a new shard that loads the log has the same groups, and no partition has two owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.coordinator.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup, RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.regular_expressions import matching_topics
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.runtime.machine import Appended, AppendRefused, Committed, Effects, Loaded, Tick, Waiter
from moldau.coordinator.shard.kinds import change_of
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.errors import ErrorCode
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
from tests.support.topics_image import TestImage, TestTopic

GROUP_ID = "g"
START_MS = 1_000_000
CLIENT = object()


def stage_image(version: int, counts: Mapping[str, int], settings: Mapping[str, str]) -> TestImage:
    """Topics by name, each with the id of its name's first letter 16 times."""
    topics = tuple(TestTopic(name, id_of(name), count) for name, count in counts.items())
    return TestImage(topics, version, version, settings)


def id_of(name: str) -> bytes:
    return name[:1].encode() * 16


@dataclass
class ConsumerStage:
    counts: dict[str, int] = field(default_factory=lambda: {"a": 4})
    config: GroupConfig = field(default_factory=GroupConfig)
    settings: dict[str, str] = field(default_factory=dict)
    now_ms: int = START_MS
    log: list[Record] = field(default_factory=list)
    commands: list[object] = field(default_factory=list)
    append_error: ErrorCode = ErrorCode.NONE
    """The error of the next append."""
    commits: bool = True
    """Whether what is appended is committed at once."""
    written: list[str] = field(default_factory=list)
    """The types of the records of the last step."""

    def __post_init__(self) -> None:
        self.answers: dict[object, object] = {}
        """The answers that nobody has taken yet, by the token of their waiter."""
        self.token = 0
        self.shard = self._shard()
        self.image = stage_image(1, self.counts, self.settings)
        self._step(Loaded())

    def _shard(self) -> GroupShard:
        return GroupShard(self.config, 0, lambda: self.image)

    def topics(self, **counts: int) -> None:
        """The topics of the cluster from now on."""
        self.counts = counts
        self.image = stage_image(self.image.version + 1, counts, self.settings)

    # Time and the log

    def _step(self, event: object) -> Effects:
        effects = self.shard.step(event, self.now_ms, self.now_ms)  # type: ignore[arg-type]
        self._take(effects)
        self.written = []
        while effects.records:
            if self.append_error is not ErrorCode.NONE:
                refused, self.append_error = self.append_error, ErrorCode.NONE
                effects = self.shard.step(AppendRefused(refused), self.now_ms, self.now_ms)
            else:
                self.log += effects.records
                self.written += [type_of(record) for record in effects.records]
                end_offset = len(self.log)
                effects = self.shard.step(
                    Appended(end_offset, end_offset if self.commits else 0), self.now_ms, self.now_ms
                )
            self._take(effects)
        return effects

    def _take(self, effects: Effects) -> None:
        self.answers |= {reply.token: reply.response for reply in effects.replies}
        self.commands += effects.commands

    def ask(self, event: object) -> object:
        """The answer to an event whose waiter is `waiter()`; None while it is parked."""
        reply = self.shard.reply_at_once(event, self.now_ms, self.now_ms)  # type: ignore[arg-type]
        if reply is None:
            self._step(event)
        else:
            self.answers[reply.token], self.written = reply.response, []
        self.check()
        return self.answers.pop(self.token, None)

    def commit_log(self) -> None:
        """Commit what is appended, and what will be."""
        self.commits = True
        self._step(Committed(len(self.log)))

    def waiter(self, version: int = 1) -> Waiter:
        self.token += 1
        return Waiter(self.token, version)

    def wait(self, duration_ms: int) -> None:
        """Let time pass; timers fire."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._step(Tick())
        self.now_ms = end_ms
        self.check()

    def check(self) -> None:
        """The groups are those of the log, and no partition has two owners."""
        assert snapshot(self.reloaded().group(GROUP_ID)) == snapshot(self.shard.group(GROUP_ID))
        group = self.shard.group(GROUP_ID)
        if isinstance(group, ConsumerGroup):
            check_owners(group)

    def reloaded(self) -> GroupShard:
        """A shard that has loaded the log."""
        shard = GroupShard(self.config, len(self.log), lambda: self.image)
        for offset, record in enumerate(self.log):
            change = change_of(record)
            if change is not None:
                shard.replay(change, offset + 1)
        return shard

    def move(self) -> None:
        """Another coordinator loads the groups and takes over."""
        self.shard = self.reloaded()
        self._step(Loaded())

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
                names = {topic.id: topic.name for topic in self.image.topics}
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
        response = self.ask(DescribeConsumerGroup(self.waiter(), GROUP_ID))
        assert isinstance(response, DescribedGroup)
        return response

    def resolve(self) -> bool:
        """Carry out the next command to resolve regular expressions; False where there is none."""
        if not self.commands:
            return False
        command = self.commands.pop(0)
        assert isinstance(command, ResolveRegexes)
        topics = matching_topics(command.regexes, command.image.topic_names())
        self._step(RegexesResolved(command.group_id, topics, command.image.version, self.now_ms))
        self.check()
        return True


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The partitions of an answer by the first letter of the topic; None where the answer has no assignment."""
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
