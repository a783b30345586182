"""The rules by which a StreamsGroupHeartbeat is invalid for any group, with Apache Kafka's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from moldau.coordinator.group.membership import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_TIMEOUT_MS,
    HeartbeatRule,
    Refusal,
    first_broken_rule,
    is_blank,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from moldau.protocol.records.record_frames import is_storable

Condition: TypeAlias = Callable[[StreamsGroupHeartbeatRequest], bool]


def only_when_joining(condition: Condition) -> Condition:
    return lambda request: request.member_epoch == JOIN_EPOCH and condition(request)


def has_source_pattern(request: StreamsGroupHeartbeatRequest) -> bool:
    return request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies)


def has_incomplete_tasks(request: StreamsGroupHeartbeatRequest) -> bool:
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    return None in tasks and tasks != (None, None, None)


INVALID: Final[tuple[HeartbeatRule[StreamsGroupHeartbeatRequest], ...]] = (
    # What the protocol has, and Apache Kafka 4.3.1 does not do yet.
    HeartbeatRule(lambda request: request.instance_id is not None, "Static membership is not yet supported."),
    HeartbeatRule(lambda request: request.task_offsets is not None, "TaskOffsets are not supported yet."),
    HeartbeatRule(lambda request: request.task_end_offsets is not None, "TaskEndOffsets are not supported yet."),
    HeartbeatRule(lambda request: bool(request.warmup_tasks), "WarmupTasks are not supported yet."),
    HeartbeatRule(has_source_pattern, "Regular expressions for source topics are not supported yet."),
    HeartbeatRule(lambda request: is_blank(request.member_id), "MemberId can't be empty."),
    HeartbeatRule(lambda request: is_blank(request.group_id), "GroupId can't be empty."),
    HeartbeatRule(lambda request: is_blank(request.rack_id), "RackId can't be empty."),
    HeartbeatRule(
        lambda request: not is_storable(request.group_id) or not is_storable(request.member_id),
        "GroupId and MemberId must fit into a record.",
    ),
    HeartbeatRule(
        only_when_joining(lambda request: request.rebalance_timeout_ms == NO_TIMEOUT_MS),
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    HeartbeatRule(
        only_when_joining(lambda request: request.active_tasks != []), "ActiveTasks must be empty when (re-)joining."
    ),
    HeartbeatRule(
        only_when_joining(lambda request: request.standby_tasks != []), "StandbyTasks must be empty when (re-)joining."
    ),
    HeartbeatRule(
        only_when_joining(lambda request: request.warmup_tasks != []), "WarmupTasks must be empty when (re-)joining."
    ),
    HeartbeatRule(
        only_when_joining(lambda request: request.topology is None), "Topology must be non-null when (re-)joining."
    ),
    HeartbeatRule(lambda request: request.member_epoch == LEAVE_STATIC_EPOCH, "InstanceId can't be null."),
    HeartbeatRule(
        lambda request: request.member_epoch < LEAVE_STATIC_EPOCH,
        "MemberEpoch is {0.member_epoch}, but must be greater than or equal to -2.",
    ),
    HeartbeatRule(has_incomplete_tasks, "If one task-type is non-null, all must be non-null."),
    HeartbeatRule(
        lambda request: request.member_epoch != JOIN_EPOCH and request.topology is not None,
        "Topology can only be provided when (re-)joining.",
    ),
)


def refusal_of(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    """The refusal of a request that is invalid for any group; None if the request is valid."""
    refusal = first_broken_rule(INVALID, request)
    return refusal if refusal is not None or request.topology is None else invalid_changelog_in(request.topology)


def invalid_changelog_in(topology: Topology) -> Refusal | None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                return Refusal(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}.",
                )
    return None
