"""What makes a StreamsGroupHeartbeat invalid whatever its group is, with Apache Kafka's messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.coordinator.streams.configured_topology import Refusal
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from moldau.protocol.records.record_frames import is_storable

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
NO_TIMEOUT_MS: Final = -1
BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java trims."""


def refusal_of(request: StreamsGroupHeartbeatRequest) -> Refusal | None:
    """Why the request is invalid; None: it is valid."""
    return next(refusals_of(request), None)


def refusals_of(request: StreamsGroupHeartbeatRequest) -> Iterator[Refusal]:
    """All that is wrong with a request, in the order in which Apache Kafka looks at it."""
    yield from map(_invalid, unsupported_in(request))
    yield from map(_invalid, unusable_ids_in(request))
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        yield from map(_invalid, missing_in_join(request))
        if request.topology is not None:
            yield from invalid_changelogs_in(request.topology)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        yield _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        yield _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if None in tasks and tasks != (None, None, None):
        yield _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOIN_EPOCH and request.topology is not None:
        yield _invalid("Topology can only be provided when (re-)joining.")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def unsupported_in(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    """What the protocol has, and Apache Kafka 4.3.1 does not do yet."""
    if request.instance_id is not None:
        yield "Static membership is not yet supported."
    if request.task_offsets is not None:
        yield "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        yield "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        yield "WarmupTasks are not supported yet."
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        yield "Regular expressions for source topics are not supported yet."


def unusable_ids_in(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    if is_blank(request.member_id):
        yield "MemberId can't be empty."
    if is_blank(request.group_id):
        yield "GroupId can't be empty."
    if request.rack_id is not None and is_blank(request.rack_id):
        yield "RackId can't be empty."
    if not is_storable(request.group_id) or not is_storable(request.member_id):
        yield "GroupId and MemberId must fit into a record."


def is_blank(text: str) -> bool:
    return not text.strip(BLANKS)


def missing_in_join(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    if request.rebalance_timeout_ms == NO_TIMEOUT_MS:
        yield "RebalanceTimeoutMs must be provided in first request."
    if request.active_tasks is None or request.active_tasks:
        yield "ActiveTasks must be empty when (re-)joining."
    if request.standby_tasks is None or request.standby_tasks:
        yield "StandbyTasks must be empty when (re-)joining."
    if request.warmup_tasks is None or request.warmup_tasks:
        yield "WarmupTasks must be empty when (re-)joining."
    if request.topology is None:
        yield "Topology must be non-null when (re-)joining."


def invalid_changelogs_in(topology: Topology) -> Iterator[Refusal]:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                yield Refusal(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}.",
                )
