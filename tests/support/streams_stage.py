"""A shard of the group coordinator with streams groups: a log in memory, a clock, and topics that tests set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.coordinator.classic.events import Join
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, ShardRequest
from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.runtime.machine import Appended, AppendRefused, Committed, Effects, Loaded, Tick, Waiter
from moldau.coordinator.shard.kinds import change_of
from moldau.coordinator.shard.shard import GroupShard
from moldau.coordinator.streams.configured_topology import ConfiguredInternalTopic
from moldau.coordinator.streams.describe import describe
from moldau.coordinator.streams.events import DescribeStreamsGroup, HeartbeatReply, StreamsHeartbeat
from moldau.coordinator.streams.group import StreamsGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.streams_group_describe import DescribedGroup
from moldau.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from moldau.protocol.record_builder import Record
from tests.support.topics_image import TestImage, TestTopic

WALL_MS = 1_700_000_000_000
GROUP = "app"


def image(topics: Mapping[str, int], settings: Mapping[str, str], version: int = 0) -> TestImage:
    """The metadata of a cluster with these topics, by name, and their numbers of partitions."""
    made = (TestTopic(name, name.encode()[:16].ljust(16, b"\0"), count) for name, count in topics.items())
    return TestImage(tuple(made), version, version, settings)


def subtopology(subtopology_id: str = "0", sources: Sequence[str] = ("in",), *stores: str) -> Subtopology:
    changelogs = [TopicInfo(name=name, partitions=0, replication_factor=0) for name in stores]
    return Subtopology(subtopology_id=subtopology_id, source_topics=list(sources), state_changelog_topics=changelogs)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies or (subtopology(),)))


def tasks(*partitions: int, subtopology_id: str = "0") -> list[TaskIds]:
    return [TaskIds(subtopology_id=subtopology_id, partitions=list(partitions))] if partitions else []


class StreamsStage:
    def __init__(self, topics: Mapping[str, int], config: StreamsGroupSettings | None = None) -> None:
        self.config = GroupConfig(
            initial_rebalance_delay_ms=0,
            streams=config or StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0),
        )
        self.now_ms = 0
        self.records: list[Record] = []
        """The log."""
        self.topics_to_create: Mapping[str, ConfiguredInternalTopic] = {}
        """Of the last heartbeat."""
        self.refusal = ErrorCode.NONE
        """The error with which the log refuses the next batch."""
        self._versions = 0
        """The number of images published so far."""
        self.set_topics(topics)
        self.shard = self._new_shard()

    def set_topics(self, topics: Mapping[str, int], **settings: str) -> None:
        """Publish other metadata. Settings of the group are by Kafka's names, with `_` for `.`."""
        self._versions += 1
        by_kafkas_name = {key.replace("_", "."): value for key, value in settings.items()}
        self.image = image(topics, by_kafkas_name, self._versions)

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(self.config, 0, lambda: self.image)
        for offset, record in enumerate(self.records):
            change = change_of(record)
            assert change is not None
            shard.replay(change, offset + 1)
        shard.step(Committed(len(self.records)), self.now_ms, self.wall_ms)
        shard.step(Loaded(), self.now_ms, self.wall_ms)
        return shard

    def reload(self) -> None:
        """Another broker takes over the partition: it has the log, and nothing else."""
        self.shard = self._new_shard()

    def loaded_copy(self) -> GroupShard:
        return self._new_shard()

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def ask(self, event: ShardRequest) -> object:
        replies = dict(self._act(self.shard.step(event, self.now_ms, self.wall_ms)))
        while not replies and (self.shard.next_deadline_ms() or 0) <= self.now_ms:
            replies = dict(self._act(self.shard.step(Tick(), self.now_ms, self.wall_ms)))
        assert list(replies) == ["client"], replies
        return replies["client"]

    def _act(self, effects: Effects) -> list[tuple[object, object]]:
        replies = [*effects.replies]
        if effects.has_batch:
            if self.refusal is not ErrorCode.NONE:
                refusal, self.refusal = self.refusal, ErrorCode.NONE
                replies += self.shard.step(AppendRefused(refusal), self.now_ms, self.wall_ms).replies
                return [(token, response) for token, response in replies]
            self.records += effects.records
            end_offset = len(self.records)
            replies += self.shard.step(Appended(end_offset), self.now_ms, self.wall_ms).replies
            replies += self.shard.step(Committed(end_offset), self.now_ms, self.wall_ms).replies
        return [(token, response) for token, response in replies]

    def wait(self, duration_ms: int) -> None:
        """Let time pass; timers fire when they are due."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._act(self.shard.step(Tick(), self.now_ms, self.wall_ms))
        self.now_ms = end_ms

    # Requests

    def heartbeat(self, member_id: str, epoch: int, **fields: object) -> StreamsGroupHeartbeatResponse:
        values: dict[str, object] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "endpoint_information_epoch": 0,
            "shutdown_application": False,
            **fields,
        }
        request = StreamsGroupHeartbeatRequest(**values)  # type: ignore[arg-type]
        reply = self.ask(StreamsHeartbeat(Waiter("client", 0), request, "cli", "/127.0.0.1"))
        assert isinstance(reply, HeartbeatReply)
        self.topics_to_create = reply.topics_to_create
        return reply.response

    def join(self, member_id: str, process_id: str = "", **fields: object) -> StreamsGroupHeartbeatResponse:
        values: dict[str, object] = {
            "rebalance_timeout_ms": 30_000,
            "topology": topology(),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": process_id or f"process-{member_id}",
            **fields,
        }
        return self.heartbeat(member_id, 0, **values)

    def report(self, member_id: str, epoch: int, *partitions: int, **fields: object) -> StreamsGroupHeartbeatResponse:
        """A heartbeat of a member that owns these active tasks of subtopology 0, and no others."""
        values: dict[str, object] = {
            "active_tasks": tasks(*partitions),
            "standby_tasks": [],
            "warmup_tasks": [],
            **fields,
        }
        return self.heartbeat(member_id, epoch, **values)

    def leave(self, member_id: str, **fields: object) -> StreamsGroupHeartbeatResponse:
        return self.heartbeat(member_id, -1, **fields)

    def describe(self, group_id: str = GROUP) -> DescribedGroup:
        described = self.ask(DescribeStreamsGroup(Waiter("client", 0), group_id))
        assert isinstance(described, DescribedGroup)
        return described

    def commit(self, member_id: str, epoch: int, topic: str = "in", partition: int = 0, version: int = 9) -> ErrorCode:
        wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )
        response = self.ask(CommitOffsets(Waiter("client", version), request))
        assert isinstance(response, OffsetCommitResponse)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def join_classic(self) -> JoinGroupResponse:
        """A JoinGroup of the classic protocol, in a version in which the member needs no id."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        response = self.ask(Join(Waiter("client", 3), request, "cli", "/127.0.0.1", "fresh"))
        assert isinstance(response, JoinGroupResponse)
        return response

    # State

    @property
    def group(self) -> StreamsGroup:
        return group_in(self.shard)

    @property
    def state(self) -> str:
        return self.group.state_name


def group_in(shard: GroupShard, group_id: str = GROUP) -> StreamsGroup:
    group = shard.group(group_id)
    assert isinstance(group, StreamsGroup)
    return group


def image_of(group: StreamsGroup) -> object:
    """All that records say about a group, for comparison."""
    described = describe(group)
    described.topology = None
    return (
        described,
        group.topology,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.assignment_configs,
        group.assignment_ms,
        group.targets,
        group.members,
        group.owners.active,
        group.owners.standby,
    )
