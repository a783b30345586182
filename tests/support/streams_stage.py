"""A shard of the group coordinator with Streams groups on a stage, and topics that tests set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moldau.coordinator.classic.events import Join
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.description import GroupDescription
from moldau.coordinator.group.events import CommitOffsets
from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.runtime.machine import Loaded
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
from tests.support.group_stage import GroupStage
from tests.support.topics_image import image_of_topics

GROUP = "app"


def subtopology(subtopology_id: str = "0", sources: Sequence[str] = ("in",), *stores: str) -> Subtopology:
    changelogs = [TopicInfo(name=name, partitions=0, replication_factor=0) for name in stores]
    return Subtopology(subtopology_id=subtopology_id, source_topics=list(sources), state_changelog_topics=changelogs)


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies or (subtopology(),)))


def tasks(*partitions: int, subtopology_id: str = "0") -> list[TaskIds]:
    return [TaskIds(subtopology_id=subtopology_id, partitions=list(partitions))] if partitions else []


class StreamsStage(GroupStage):
    def __init__(self, topics: Mapping[str, int], config: StreamsGroupSettings | None = None) -> None:
        self.topics_to_create: Mapping[str, ConfiguredInternalTopic] = {}
        """Of the last heartbeat."""
        settings = config or StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
        super().__init__(GroupConfig(initial_rebalance_delay_ms=0, streams=settings), image_of_topics(topics, {}))
        self.step(Loaded())

    def ask(self, event: Any) -> object:
        response = super().ask(event)
        if response is None:
            self.wait(0)
            response = self.replies.pop(event.waiter.token)
        return response

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
        reply = self.ask(StreamsHeartbeat(self.waiter(0), request, "cli", "/127.0.0.1"))
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
        described = self.ask(DescribeStreamsGroup(self.waiter(0), group_id))
        whole = described.whole() if isinstance(described, GroupDescription) else described
        assert isinstance(whole, DescribedGroup)
        return whole

    def commit(self, member_id: str, epoch: int, topic: str = "in", partition: int = 0, version: int = 9) -> ErrorCode:
        wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )
        response = self.ask(CommitOffsets(self.waiter(version), request))
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
        response = self.ask(Join(self.waiter(3), request, "cli", "/127.0.0.1", "fresh"))
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
    described = describe(group).whole()
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
