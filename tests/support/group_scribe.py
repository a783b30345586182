"""A shard of the group coordinator on a stage that writes down what happens, for transcripts.

Commands (an option that is left out has the default of `REQUEST_DEFAULTS`):

    join g client=a [member= instance= protocols=range,sticky topics=t session= rebalance= v=]
    sync g member= generation= [plan=a-1:t0,b-2:t1 instance=]      heartbeat g member= generation= [instance=]
    leave g members=a-1,b-2 [instances=x v=]                       commit g t-0=5 [member= generation= retention= v=]
    txn-commit g producer=7 t-0=5 [member= generation= instance=]  end-txn producer=7 commit, or abort
    fetch g [topics=t-0,t-1 stable=1]     delete-offsets g topics=t-0     delete g      topic-deleted t
    describe g      list      and what every machine takes (tests/support/machine_scribe.py)
"""

from __future__ import annotations

from typing import Any

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.classic.group import describe
from moldau.coordinator.group import events
from moldau.coordinator.group.records import Change, OffsetChange, RecordChange, TransactionEnded
from moldau.coordinator.offsets.offset_fetch import AllOffsets
from moldau.coordinator.runtime.machine import Loaded, TransactionEnd
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.protocol.records.offsets import ConsumerProtocolSubscription, GroupMetadataValue
from tests.support.group_stage import GroupStage
from tests.support.machine_scribe import MachineScribe, names_in
from tests.support.machine_stage import WALL_MS
from tests.support.transcripts import Command


class GroupScribe(MachineScribe[GroupShard], GroupStage):
    """Give an instance's `respond` to `check_transcript`."""

    def __init__(self) -> None:
        self.ids_given = 0
        super().__init__()
        self.step(Loaded())

    def said(self, response: object) -> str:
        return said(response)

    def written(self, change: Change) -> str:
        return written(change)

    # Requests

    def do_join(self, command: Command) -> None:
        options = command.options
        names = options.get("protocols", "range").split(",")
        metadata = subscription(options.get("topics", "t").split(","), options.get("data", ""))
        request = JoinGroupRequest(
            group_id=command.arguments[0] if command.arguments else "",
            session_timeout_ms=command.int("session", 10_000),
            rebalance_timeout_ms=command.int("rebalance", 30_000),
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names if name],
        )
        self.ids_given += 1
        client = options.get("client", "client")
        waiter = self.waiter_of(command, 9)
        self.step(classic_events.Join(waiter, request, client, "/10.0.0.1", str(self.ids_given)))

    def do_sync(self, command: Command) -> None:
        plan = [part.split(":") for part in command.options.get("plan", "").split(",") if part]
        request = SyncGroupRequest(
            group_id=command.arguments[0],
            generation_id=command.int("generation"),
            member_id=command.options["member"],
            group_instance_id=command.options.get("instance"),
            protocol_type=command.options.get("type", "consumer"),
            protocol_name=command.options.get("protocol", "range"),
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=work.encode()) for member, work in plan
            ],
        )
        self.step(classic_events.Sync(self.waiter_of(command, 5), request))

    def do_heartbeat(self, command: Command) -> None:
        request = HeartbeatRequest(
            group_id=command.arguments[0],
            generation_id=command.int("generation"),
            member_id=command.options["member"],
            group_instance_id=command.options.get("instance"),
        )
        self.step(classic_events.Heartbeat(self.waiter_of(command, 4), request))

    def do_leave(self, command: Command) -> None:
        members = [MemberIdentity(member_id=name) for name in names_in(command, "members")]
        members += [MemberIdentity(member_id="", group_instance_id=name) for name in names_in(command, "instances")]
        request = LeaveGroupRequest(group_id=command.arguments[0], members=members)
        self.step(classic_events.Leave(self.waiter_of(command, 5), request))

    def do_commit(self, command: Command) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=int(offset),
                        committed_metadata="x" * command.int("metadata", 0),
                    )
                ],
            )
            for key, offset in command.options.items()
            if "-" in key
            for topic, index in [topic_partition(key)]
        ]
        request = OffsetCommitRequest(
            group_id=command.arguments[0] if command.arguments else "",
            generation_id_or_member_epoch=command.int("generation", -1),
            member_id=command.options.get("member", ""),
            group_instance_id=command.options.get("instance"),
            retention_time_ms=command.int("retention", -1),
            topics=topics,
        )
        self.step(events.CommitOffsets(self.waiter_of(command, 9), request))

    def do_txn_commit(self, command: Command) -> None:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=int(offset),
                        committed_metadata="x" * command.int("metadata", 0),
                    )
                ],
            )
            for key, offset in command.options.items()
            if "-" in key
            for topic, index in [topic_partition(key)]
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=command.arguments[0] if command.arguments else "",
            producer_id=command.int("producer"),
            producer_epoch=command.int("epoch", 0),
            generation_id_or_member_epoch=command.int("generation", -1),
            member_id=command.options.get("member", ""),
            group_instance_id=command.options.get("instance"),
            topics=topics,
        )
        self.step(events.CommitTransactionalOffsets(self.waiter_of(command, 3), request))

    def do_end_txn(self, command: Command) -> None:
        end = TransactionEnd(command.arguments == ["commit"], coordinator_epoch=0)
        waiter = self.waiter_of(command, 1)
        self.step(events.EndOffsetsTransaction(waiter, command.int("producer"), command.int("epoch", 0), end))

    def do_fetch(self, command: Command) -> None:
        request = OffsetFetchRequestGroup(group_id=command.arguments[0], topics=None)
        if "topics" in command.options:
            request.topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
                for topic, index in map(topic_partition, names_in(command, "topics"))
            ]
        if "stable" in command.options:
            self.step(events.FetchStableOffsets(self.waiter_of(command, 9), request))
        else:
            self.lines.append(said(self.shard.offsets(request)))

    def do_delete_offsets(self, command: Command) -> None:
        request = OffsetDeleteRequest(
            group_id=command.arguments[0],
            topics=[
                OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
                for topic, index in map(topic_partition, names_in(command, "topics"))
            ],
        )
        self.step(events.DeleteOffsets(self.waiter_of(command, 0), request))

    def do_delete(self, command: Command) -> None:
        request = DeleteGroupsRequest(groups_names=command.arguments)
        self.step(events.DeleteGroups(self.waiter_of(command, 2), request))

    def do_topic_deleted(self, command: Command) -> None:
        self.step(events.TopicsDeleted(frozenset(command.arguments)))

    def do_describe(self, command: Command) -> None:
        group_id = command.arguments[0]
        group = describe(self.shard.group(group_id), group_id, command.int("v", 6))
        members = " ".join(f"{member.member_id}({member.member_assignment.decode()})" for member in group.members)
        self.lines.append(
            f"{error_name(group.error_code)} {group.group_state} type={group.protocol_type} "
            f"protocol={group.protocol_data} members=[{members}]"
        )

    def do_list(self, command: Command) -> None:
        groups = self.shard.list_groups(names_in(command, "states"), names_in(command, "types"))
        for group in filter(None, groups):
            kind = f"type={group.protocol_type} kind={group.group_type}"
            self.lines.append(f"{group.group_id} {group.group_state} {kind}")

    # The world

    def do_config(self, command: Command) -> None:
        values: dict[str, Any] = {key: int(value) for key, value in command.options.items()}
        self.config = self.shard.config = self.config._replace(**values)


def subscription(topics: list[str], user_data: str) -> bytes:
    message = ConsumerProtocolSubscription(topics=topics, user_data=user_data.encode())
    return b"\0\0" + encode(message, 0)


def topic_partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def error_name(code: int) -> str:
    return ErrorCode(code).name


def written(change: Change) -> str:
    """A change as a reader wants it."""
    match change:
        case TransactionEnded(producer_id, is_commit):
            return f"marker of {producer_id}: {'commit' if is_commit else 'abort'}"
        case OffsetChange(group, topic, partition, None):
            return f"offset of {group} in {topic}-{partition}: none"
        case OffsetChange(group, topic, partition, value) if value is not None:
            until = "" if value.expire_ms is None else f" until {value.expire_ms - WALL_MS}"
            within = "" if change.producer_id < 0 else f" in the transaction of {change.producer_id}"
            return f"offset of {group} in {topic}-{partition}: {value.offset}{until}{within}"
        case RecordChange(group, _, None):
            return f"group {group}: none"
        case RecordChange(group, _, GroupMetadataValue() as value):
            members = " ".join(f"{member.member_id}({member.assignment.decode()})" for member in value.members)
            return (
                f"group {group}: generation={value.generation} type={value.protocol_type} protocol={value.protocol} "
                f"leader={value.leader} members=[{members}]"
            )
    raise AssertionError(change)


def said(response: object) -> str:
    """A reply as a reader wants it."""
    match response:
        case AllOffsets():
            return said(response.whole())
        case JoinGroupResponse():
            if response.error_code:
                return f"{error_name(response.error_code)} member={response.member_id}"
            members = ",".join(member.member_id for member in response.members)
            skip = " skip" if response.skip_assignment else ""
            return (
                f"joined generation={response.generation_id} protocol={response.protocol_name} "
                f"leader={response.leader} member={response.member_id} members=[{members}]{skip}"
            )
        case SyncGroupResponse():
            return f"{error_name(response.error_code)} share=({response.assignment.decode()})"
        case HeartbeatResponse():
            return error_name(response.error_code)
        case LeaveGroupResponse():
            results = [
                f"{member.member_id or member.group_instance_id}:{error_name(member.error_code)}"
                for member in response.members
            ]
            return " ".join([error_name(response.error_code), *results])
        case ErrorCode():
            return response.name
        case OffsetCommitResponse() | OffsetDeleteResponse() | TxnOffsetCommitResponse():
            results = [
                f"{topic.name}-{partition.partition_index}:{error_name(partition.error_code)}"
                for topic in response.topics
                for partition in topic.partitions
            ]
            error = [error_name(response.error_code)] if isinstance(response, OffsetDeleteResponse) else []
            return " ".join(error + results)
        case OffsetFetchResponseGroup():
            results = [
                f"{topic.name}-{partition.partition_index}="
                f"{error_name(partition.error_code) if partition.error_code else partition.committed_offset}"
                for topic in response.topics
                for partition in topic.partitions
            ]
            return " ".join([error_name(response.error_code), *results])
        case DeleteGroupsResponse():
            return " ".join(f"{result.group_id}:{error_name(result.error_code)}" for result in response.results)
    raise AssertionError(response)
