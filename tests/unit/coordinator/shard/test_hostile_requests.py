"""What no honest client sends must not hurt the others."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import Effects, Waiter
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.consumer_stage import ConsumerStage
from tests.support.share_group_stage import ShareGroupStage
from tests.support.streams_stage import StreamsStage

LONG = "x" * 40_000


class Shell:
    """The thinnest shell: everything is committed at once."""

    def __init__(self) -> None:
        self.shard = GroupShard(GroupConfig(initial_rebalance_delay_ms=0))
        self.end_offset = 0
        self.step(machine.Loaded())

    def step(self, event: events.Event) -> list[object]:
        effects = self.shard.step(event, 0, 0)
        replies = self.told(effects)
        while effects.records:
            self.end_offset += len(effects.records)
            effects = self.shard.step(machine.Appended(self.end_offset), 0, 0)
            replies += self.told(effects)
            replies += self.told(self.shard.step(machine.Committed(self.end_offset), 0, 0))
        return replies

    def told(self, effects: Effects) -> list[object]:
        return [response for _, response in effects.replies]

    def join(self, **values: object) -> JoinGroupResponse:
        """A join of version 3, answered when its rebalance is over."""
        client_id = values.pop("client_id", "c")
        request: dict[str, object] = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [protocol("range")],
            **values,
        }
        event = classic_events.Join(
            Waiter("join", 3),
            JoinGroupRequest(**request),  # type: ignore[arg-type]
            str(client_id),
            "/10.0.0.1",
            "1",
        )
        replies = self.step(event) + self.step(machine.Tick()) + self.step(machine.Tick())
        (reply,) = replies
        assert isinstance(reply, JoinGroupResponse)
        return reply


def protocol(name: str) -> JoinGroupRequestProtocol:
    return JoinGroupRequestProtocol(name=name, metadata=b"")


@pytest.mark.parametrize(
    "values",
    [
        {"group_id": LONG},
        {"protocol_type": LONG},
        {"protocols": [protocol(LONG)]},
        {"group_instance_id": LONG},
        {"client_id": LONG},
        {"client_id": "é" * 16_383},
        {"group_instance_id": "i", "client_id": LONG},
    ],
)
def test_names_that_no_record_can_hold_are_refused(values: dict[str, object]) -> None:
    shell = Shell()
    assert shell.join(**values).error_code == ErrorCode.INVALID_REQUEST
    assert shell.join().error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "fields", [{"rack_id": LONG}, {"instance_id": LONG}, {"topics": [LONG]}, {"subscribed_topic_regex": LONG}]
)
def test_a_consumer_that_no_record_can_hold_is_refused(fields: dict[str, Any]) -> None:
    """The values of its records have a varint for the size of a string. The stage loads the log after each request."""
    stage = ConsumerStage()
    stage.join("m1")
    assert stage.join("m2", **fields).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert any("ConsumerGroupMemberMetadataValue cannot be stored: a string of 40000" in note for note in stage.notes)
    assert stage.join("m2").error_code == ErrorCode.NONE


def test_members_of_other_groups_that_no_record_can_hold_are_refused() -> None:
    streams = StreamsStage({"in": 1})
    assert streams.join("m1", rack_id=LONG).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert streams.join("m1").error_code == ErrorCode.NONE
    streams.loaded_copy()
    share = ShareGroupStage({"a": 1})
    assert share.beat("m1", 0, "a", rack_id=LONG).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert share.beat("m1", 0, "a").error_code == ErrorCode.NONE
    share.loaded_copy()


def test_what_a_member_says_of_itself_must_fit_into_a_record() -> None:
    shell = Shell()
    most = GroupConfig().member_metadata_bytes_max
    large = [JoinGroupRequestProtocol(name=name, metadata=bytes(most // 2 + 1)) for name in ("a", "b")]
    assert shell.join(protocols=large).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert shell.shard.next_deadline_ms() is None or shell.join().error_code == ErrorCode.NONE


def test_offsets_under_a_name_that_no_record_can_hold_are_refused() -> None:
    shell = Shell()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="é" * 4096)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    for group_id, error in ((LONG, ErrorCode.INVALID_GROUP_ID), ("g", ErrorCode.NONE)):
        request = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
        (reply,) = shell.step(events.CommitOffsets(Waiter("commit", 9), request))
        assert isinstance(reply, OffsetCommitResponse)
        assert reply.topics[0].partitions[0].error_code == error


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    shell = Shell()
    joined = shell.join(protocols=[protocol("range"), protocol("sticky"), protocol("range")])
    assert (joined.error_code, joined.protocol_name) == (ErrorCode.NONE, "range")


def test_a_plan_for_strangers_is_no_plan() -> None:
    shell = Shell()
    member = shell.join().member_id
    parts = [
        SyncGroupRequestAssignment(member_id=LONG, assignment=b"x"),
        *[SyncGroupRequestAssignment(member_id=member, assignment=share) for share in (b"first", b"second")],
    ]
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member, assignments=parts)
    (reply,) = shell.step(classic_events.Sync(Waiter("sync", 3), request))
    assert repr(reply).endswith("assignment=b'second')")


def test_leaving_twice_in_one_request_is_leaving_once() -> None:
    shell = Shell()
    member = shell.join().member_id
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member)] * 2)
    (reply,) = shell.step(classic_events.Leave(Waiter("leave", 3), request))
    assert isinstance(reply, LeaveGroupResponse)
    assert [result.error_code for result in reply.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("group_id", ["", LONG, "\0", "nobody"])
def test_unknown_groups_of_any_name_are_refused(group_id: str) -> None:
    shell = Shell()
    waiter = Waiter("it", 3)
    for event in (
        classic_events.Heartbeat(waiter, HeartbeatRequest(group_id=group_id, generation_id=-1, member_id=LONG)),
        classic_events.Sync(waiter, SyncGroupRequest(group_id=group_id, generation_id=-1, member_id=LONG)),
        classic_events.Leave(waiter, LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=LONG)])),
        events.DeleteGroups(waiter, DeleteGroupsRequest(groups_names=[group_id])),
        events.DeleteOffsets(waiter, OffsetDeleteRequest(group_id=group_id)),
    ):
        assert len(shell.step(event)) == 1
    assert not any(shell.shard.list_groups([], []))
