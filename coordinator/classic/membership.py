"""The sessions of the members of a classic group: heartbeats, members that leave, timers, and the load of a group."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.classic.events import ClassicTimer, Heartbeat, Leave
from moldau.coordinator.classic.group import EMPTY, HEARTBEAT_ANSWERS, STABLE, ClassicGroup, Member
from moldau.coordinator.classic.rebalance import (
    complete_if_all_joined,
    expect_heartbeat,
    on_join_timeout,
    on_sync_timeout,
    prepare_rebalance,
    rebalance,
    refuse_join,
    refuse_sync,
    remove_member,
)
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.group import GroupStep, SettledHeartbeat, TimerKey
from moldau.coordinator.group.history import Cause, Client, GroupEvent
from moldau.coordinator.runtime.step import ReplyWhenCommitted, write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from moldau.protocol.records.offsets import GroupMetadataValue, MemberMetadata

SESSION_PARTS: Final = 5
"""The part of a session, as a divisor, for which the answer to a heartbeat may wait."""
STREAMS_ASSIGNOR: Final = "stream"
"""The name of the protocol of classic groups of Kafka Streams."""
BATCH_VERSION: Final = 3
"""From this version of LeaveGroup on, a request may name several members, and the response has a result for each."""


def group_of_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Restore a group from its record: Stable if the group has members, otherwise Empty."""
    timestamp = value.current_state_timestamp
    group = ClassicGroup(group_id, None if timestamp == -1 else timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for stored in value.members:
        group.add(restore_member(value, stored))
    group.state = STABLE if group.members else EMPTY
    group.update_subscribed_topics()
    return group


def restore_member(value: GroupMetadataValue, stored: MemberMetadata) -> Member:
    """The member that a record stores. Of the member's protocols the record has only the one that the group chose."""
    timeout_ms = stored.rebalance_timeout
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocol_type=value.protocol_type,
        protocols=[JoinGroupRequestProtocol(name=value.protocol or "", metadata=stored.subscription)],
        assignment=stored.assignment,
    )


def on_loaded(step: GroupStep, group: ClassicGroup) -> None:
    """Begin the sessions of all members when the partition is loaded, so that the members have time to find this
    coordinator.

    If the group has more members than `group.max.size`, it rebalances, and the members that join first are admitted.
    """
    for member in group.members.values():
        expect_heartbeat(step, group, member)
    if len(group.members) > step.config.max_size:
        prepare_rebalance(
            step, group, step.add_to_history(group.group_id, Cause.TOO_MANY_MEMBERS, number=len(group.members))
        )


def on_unloaded(step: GroupStep, group: ClassicGroup) -> None:
    """Answer the parked requests of a group that is unloaded with NOT_COORDINATOR, so that the clients look up the new
    coordinator."""
    for member in group.members.values():
        refuse_join(step, group, member, ErrorCode.NOT_COORDINATOR, "")
        refuse_sync(step, member, ErrorCode.NOT_COORDINATOR)


def on_timer(step: GroupStep, group: ClassicGroup, key: TimerKey) -> None:
    match key.kind:
        case ClassicTimer.SESSION:
            on_session_timeout(step, group, key.member_id)
        case ClassicTimer.JOIN:
            on_join_timeout(step, group)
        case ClassicTimer.SYNC:
            on_sync_timeout(step, group)


def heartbeat(step: GroupStep, group: ClassicGroup | None, event: Heartbeat) -> None:
    step.reply(event.waiter, HeartbeatResponse(error_code=heartbeat_error(step, group, event.request)))


def heartbeat_error(step: GroupStep, group: ClassicGroup | None, request: HeartbeatRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    refusal = group.member_error(request.member_id, request.group_instance_id)
    if refusal is ErrorCode.FENCED_INSTANCE_ID:
        step.add_refusal_to_history(group.group_id, Client(request.member_id), refusal)
    if refusal is not ErrorCode.NONE:
        return refusal
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    expect_heartbeat(step, group, group.members[request.member_id])
    return HEARTBEAT_ANSWERS[group.state]


def settled_heartbeat(step: GroupStep, group: ClassicGroup, event: Heartbeat) -> SettledHeartbeat | None:
    """The heartbeat as a `SettledHeartbeat`, if it comes from a member of a stable group and only prolongs the session;
    None for any other heartbeat."""
    request = event.request
    member = group.members.get(request.member_id)
    if member is None:
        return None
    settled = SettledHeartbeat(
        group,
        member,
        request.generation_id,
        request.group_instance_id,
        TimerKey(ClassicTimer.SESSION, group.group_id, member.member_id),
        member.session_timeout_ms,
        step.config,
        step.image,
        HeartbeatResponse(error_code=HEARTBEAT_ANSWERS[STABLE]),
        wait_max_ms(group, member, step.config),
    )
    return settled if is_still_settled(group, settled) else None


def wait_max_ms(group: ClassicGroup, member: Member, config: GroupConfig) -> int:
    """How long (ms) the answer to a heartbeat of the member may wait for a rebalance; 0 if it must not wait.

    A consumer that closes without a LeaveGroup waits for the answer: a static member does, and so does a member of
    Kafka Streams.
    """
    if member.is_static or not group.is_consumer_group or group.protocol_name == STREAMS_ASSIGNOR:
        return 0
    return min(config.heartbeat_wait_max_ms, member.session_timeout_ms // SESSION_PARTS)


def is_still_settled(group: ClassicGroup, heartbeat: SettledHeartbeat) -> bool:
    """Whether a repetition of this settled heartbeat still only prolongs the member's session: the group is stable and
    in the same generation, and the member is unchanged.
    """
    member_id, instance_id = heartbeat.timer.member_id, heartbeat.instance_id
    member = group.members.get(member_id)
    return (
        group.state is STABLE
        and group.generation == heartbeat.epoch
        and member is not None
        and member is heartbeat.member
        and member.session_timeout_ms == heartbeat.timeout_ms
        and (instance_id is None or group.static_members.get(instance_id) == member_id)
    )


def on_session_timeout(step: GroupStep, group: ClassicGroup, member_id: str) -> None:
    """Handle the session timeout of a member, or of a member id that was given to a client. The member or the id is
    removed."""
    if member_id in group.pending_members:
        group.remove(member_id)
        complete_if_all_joined(step, group)
        return
    member = group.members.get(member_id)
    if member is None or member.is_kept_by_a_parked_request:
        return
    remove_member(step, group, member)
    rebalance(
        step,
        group,
        step.add_to_history(group.group_id, Cause.SESSION_EXPIRED, member, number=member.session_timeout_ms),
    )


def leave_group(step: GroupStep, group: ClassicGroup | None, event: Leave) -> None:
    request = event.request
    if not request.group_id:
        step.reply(event.waiter, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    left: list[GroupEvent] = []
    results = [result_of(identity, remove_leaving_member(step, group, identity, left)) for identity in request.members]
    response = LeaveGroupResponse(members=results)
    if event.waiter.version < BATCH_VERSION:
        response = LeaveGroupResponse(error_code=results[0].error_code)
    if group is not None and left:
        if group.state is not EMPTY:
            rebalance(step, group, left[-1])
        if step.changes:
            step.when_committed(ReplyWhenCommitted(event.waiter, response, refused_by_the_log))
            return
    step.reply(event.waiter, response)


def refused_by_the_log(error: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=write_error(error))


def result_of(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def remove_leaving_member(
    step: GroupStep, group: ClassicGroup | None, identity: MemberIdentity, left: list[GroupEvent]
) -> ErrorCode:
    """Remove the member that a LeaveGroup names, and append the event that reports it to `left`. Returns the member's
    error code: NONE, or an error if the group does not have the member."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # An operator names a static member by its instance id: it is removed under the id that it has now.
        member_id = group.static_members.get(identity.group_instance_id, "")
    if member_id in group.pending_members:
        step.cancel(ClassicTimer.SESSION, group, member_id)
        group.remove(member_id)
        left.append(step.add_to_history(group.group_id, Cause.LEFT, Client(member_id), detail=identity.reason or ""))
        return ErrorCode.NONE
    refusal = group.member_error(member_id, identity.group_instance_id)
    if refusal is ErrorCode.NONE:
        member = group.members[member_id]
        left.append(step.add_to_history(group.group_id, Cause.LEFT, member, detail=identity.reason or ""))
        remove_member(step, group, member)
    return refusal
