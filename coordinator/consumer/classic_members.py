"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Such a member follows the target assignment like the other members. Its generation is its member epoch, its JoinGroup
reports the partitions that it owns, and the response to its SyncGroup has its assignment. Its Heartbeat is answered
with REBALANCE_IN_PROGRESS if it has to rejoin: because there is a new target, because it has to revoke partitions, or
because partitions for which it waits are free. No join is parked, and no member is leader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from moldau.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from moldau.coordinator.classic.group import classic_group
from moldau.coordinator.classic.join import (
    KNOWN_MEMBER_VERSION,
    invalid_join,
    join_group,
    normalise_join,
    refuse_join_request,
)
from moldau.coordinator.classic.membership import BATCH_VERSION, refused_by_the_log, result_of
from moldau.coordinator.classic.rebalance import join_refusal, sync_refusal
from moldau.coordinator.consumer.conversion import (
    DowngradeWriteOutcome,
    downgrade_with_replaced_member,
    may_downgrade_with_replaced_member,
)
from moldau.coordinator.consumer.embedded_protocol import (
    partitions_by_id,
    read_subscription,
    read_version,
    written_assignment,
)
from moldau.coordinator.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup, ConsumerTimer, settings_of
from moldau.coordinator.consumer.leaving import remove_members
from moldau.coordinator.consumer.member import ClassicMember, ConsumerMember, MemberState
from moldau.coordinator.consumer.member_update import MemberUpdate, replaced_static_member
from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.kind_settings import MigrationPolicy
from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.group.records import Change
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.step import ReplyWhenCommitted, write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.offsets import ConsumerProtocolSubscription

OK: Final = ErrorCode.NONE


# JoinGroup


class MemberJoined(NamedTuple):
    """The outcome of a classic member's join. Once its records are committed, the member's session begins, and the
    member has to send a SyncGroup within its rebalance timeout."""

    waiter: Waiter
    response: JoinGroupResponse
    group: ConsumerGroup
    session_timeout_ms: int
    rebalance_timeout_ms: int
    is_downgrade: bool

    def on_committed(self, step: GroupStep) -> None:
        self._begin_session(step)
        step.reply(self.waiter, self.response)

    def _begin_session(self, step: GroupStep) -> None:
        member_id = self.response.member_id
        step.cancel(ConsumerTimer.JOIN, self.group, member_id)
        if not self.is_downgrade:
            step.schedule(ConsumerTimer.SESSION, self.group, self.session_timeout_ms, member_id)
            step.schedule(ConsumerTimer.SYNC, self.group, self.rebalance_timeout_ms, member_id)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        """Answer the join with an error.

        DIVERGES: after REQUEST_TIMED_OUT the member's record may still be committed, and its session begins; in Apache
        Kafka a member that does not come back stays in the group then, with its partitions.
        """
        if error is ErrorCode.REQUEST_TIMED_OUT:
            self._begin_session(step)
        step.reply(self.waiter, join_refusal(self.waiter.version, write_error(error), ""))


def join_classic(step: GroupStep, group: ConsumerGroup, event: Join) -> None:
    """Handle a JoinGroup for a consumer group. An empty consumer group is replaced by a classic group."""
    if group.is_empty:
        _join_in_place(step, group, event)
        return
    normalise_join(event)
    error = invalid_join(step, event)
    if error is OK and step.config.consumer.migration_policy is MigrationPolicy.DISABLED:
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is not OK:
        refuse_join_request(step, event, error)
        return
    request = event.request
    member_id = request.member_id or event.fresh_id
    if not group.has_room(step.config.consumer.max_size, member_id, request.group_instance_id):
        refuse_join_request(step, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not _supports(group, event):
        refuse_join_request(step, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not request.member_id and request.group_instance_id is None and event.waiter.version >= KNOWN_MEMBER_VERSION:
        step.reply(event.waiter, join_refusal(event.waiter.version, ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _join(step, group, event, member_id)


def _join_in_place(step: GroupStep, group: ConsumerGroup, event: Join) -> None:
    """Replace an empty consumer group by a classic group and hand the join to it. If the join is refused before the
    classic group is created, the consumer group stays."""
    del step.groups[group.group_id]
    join_group(step, None, event)
    classic = classic_group(step.groups, group.group_id)
    if classic is None:
        step.groups[group.group_id] = group
        return
    classic.visible_from = group.visible_from
    step.changes[:0] = group.tombstones()
    for key in group.timers:
        step.timers.cancel(key)
    step.when_committed(DowngradeWriteOutcome(group, classic))


def _supports(group: ConsumerGroup, event: Join) -> bool:
    """Whether the client is a consumer, and all members of the classic protocol support one of the client's
    protocols."""
    names = [protocol.name for protocol in event.request.protocols]
    supported = any(group.classic_protocols[name] == group.classic_members_count for name in names)
    return event.request.protocol_type == CONSUMER_PROTOCOL_TYPE and supported


def _join(step: GroupStep, group: ConsumerGroup, event: Join, member_id: str) -> None:
    request = event.request
    changes: list[Change] = []
    found = _joining_member(group, event, member_id, changes)
    try:
        subscription = read_subscription(request.protocols[0].metadata)
    except MalformedMessage:
        refuse_join_request(step, event, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    if isinstance(found, ErrorCode):
        refuse_join_request(step, event, found)
        return
    existing = group.static_member(request.group_instance_id)
    is_downgrade = existing is not None and may_downgrade_with_replaced_member(step, group, existing)
    settings = settings_of(step, group.group_id)
    update = MemberUpdate(step, group, settings, found, _with_join(found, event, subscription), changes)
    fault = update.change_subscription(is_classic=True)
    is_rebalance = is_downgrade and group.assignment_epoch < update.epoch
    if fault is None:
        update.update_target(may_compute=not is_downgrade)
        if not is_rebalance:
            fault = update.reconcile(partitions_by_id(subscription.owned_partitions, step.image))
    if isinstance(fault, Refusal):
        refuse_join_request(step, event, fault.error)
        return
    updated = update.updated
    if existing is not None and existing.member_id != updated.member_id:
        step.add_to_history(group.group_id, Cause.RETURNED, updated, detail=request.group_instance_id or "")
    if not is_downgrade:
        step.write(*update.changes)
    elif not downgrade_with_replaced_member(step, group, updated, is_rebalance=is_rebalance):
        refuse_join_request(step, event, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    response = JoinGroupResponse(
        generation_id=updated.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
        member_id=updated.member_id,
    )
    timeouts = request.session_timeout_ms, request.rebalance_timeout_ms
    step.when_committed(MemberJoined(event.waiter, response, group, *timeouts, is_downgrade))


def _joining_member(
    group: ConsumerGroup, event: Join, member_id: str, changes: list[Change]
) -> ConsumerMember | ErrorCode:
    """The member that sent a join, a new member, or an error. If the request takes over a static member under a new id,
    the records of the replacement are added to `changes`."""
    instance_id = event.request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    former = group.static_member(instance_id)
    if event.request.member_id:
        if former is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return former if former.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID
    if former is None:
        return ConsumerMember(member_id)
    member, replacing = replaced_static_member(group, former, member_id)
    changes += replacing
    return member


def _with_join(member: ConsumerMember, event: Join, subscription: ConsumerProtocolSubscription) -> ConsumerMember:
    request = event.request
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        subscribed_regex="",
        client_id=event.client_id,
        client_host=event.client_host,
        classic=ClassicMember(
            request.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )


# SyncGroup, Heartbeat, LeaveGroup


class AssignmentFetched(NamedTuple):
    """The outcome of a classic member's SyncGroup. The response is sent once the records that gave the assignment to
    the member are committed."""

    waiter: Waiter
    response: SyncGroupResponse
    group: ConsumerGroup
    member: ConsumerMember

    def on_committed(self, step: GroupStep) -> None:
        step.cancel(ConsumerTimer.SYNC, self.group, self.member.member_id)
        _expect_heartbeat(step, self.group, self.member)
        step.reply(self.waiter, self.response)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        step.reply(self.waiter, sync_refusal(write_error(error)))


def sync_classic(step: GroupStep, group: ConsumerGroup, event: Sync) -> None:
    """Handle a SyncGroup. The response has the member's partitions; an assignment in the request is ignored."""
    request = event.request
    member = _classic_member(group, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        step.reply(event.waiter, sync_refusal(member))
        return
    error = _sync_refusal(step, group, member, request)
    if error is not OK:
        step.reply(event.waiter, sync_refusal(error))
        return
    assert member.classic is not None
    _, subscription = member.classic.protocols[0]
    assignment = written_assignment(member.assigned, read_version(subscription), step.image)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
    )
    step.when_committed(AssignmentFetched(event.waiter, response, group, member))


def _sync_refusal(
    step: GroupStep, group: ConsumerGroup, member: ConsumerMember, request: SyncGroupRequest
) -> ErrorCode:
    assert member.classic is not None
    if request.generation_id != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    name, _ = member.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(step, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return OK


def heartbeat_classic(step: GroupStep, group: ConsumerGroup, event: Heartbeat) -> None:
    """Handle a Heartbeat. Its response tells the member when to rejoin."""
    request = event.request
    member = _classic_member(group, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        error = member
    elif request.generation_id != member.epoch:
        error = ErrorCode.ILLEGAL_GENERATION
    else:
        error = OK
        _expect_heartbeat(step, group, member)
        if group.classic_members_count == len(group.members):
            _assign_without_consumer_members(step, group, member)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member))
        ):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            _expect_join(step, group, member)
    response = HeartbeatResponse(error_code=error)
    if isinstance(member, ErrorCode):
        step.reply(event.waiter, response)
    else:
        step.when_committed(ReplyWhenCommitted(event.waiter, response, _heartbeat_refused))


def _assign_without_consumer_members(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Compute the target of a new epoch if the topics have changed, as a heartbeat of the consumer protocol does.

    DIVERGES: in Apache Kafka 4.3.1 only a join does so if all members are of the classic protocol. After one of them
    has left, or a topic has grown, the group stays Assigning, and partitions without an owner, until some member joins.
    """
    update = MemberUpdate(step, group, settings_of(step, group.group_id), member, member)
    update.change_subscription(is_classic=True)
    update.update_target()
    step.write(*update.changes)


def _heartbeat_refused(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=write_error(error))


def leave_classic(step: GroupStep, group: ConsumerGroup, event: Leave) -> None:
    """Handle a LeaveGroup. The sender may be a member, which removes itself, or an administrator's tool, which removes
    members of either protocol.
    """
    results = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in event.request.members:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
        error = OK
        if member is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif instance_id is not None and member_id and member.member_id != member_id:
            error = ErrorCode.FENCED_INSTANCE_ID
        else:
            leaving[member.member_id] = member
        results.append(result_of(identity, error))
    response = LeaveGroupResponse(members=results)
    if event.waiter.version < BATCH_VERSION:
        response = LeaveGroupResponse(error_code=results[0].error_code)
    remove_members(step, group, [*leaving.values()], Cause.LEFT)
    step.when_committed(ReplyWhenCommitted(event.waiter, response, refused_by_the_log))


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorCode:
    """The member of the classic protocol that sent a request; an error if the group does not have the member, or if the
    member uses the consumer protocol."""
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.member_id != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.UNKNOWN_MEMBER_ID if member.classic is None else member


def _expect_heartbeat(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    assert member.classic is not None
    step.schedule(ConsumerTimer.SESSION, group, member.classic.session_timeout_ms, member.member_id)


def _expect_join(step: GroupStep, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Start the timer that removes the member unless it rejoins within its rebalance timeout. A timer that runs already
    is left as it is."""
    if not step.timers.has(TimerKey(ConsumerTimer.JOIN, group.group_id, member.member_id)):
        step.schedule(ConsumerTimer.JOIN, group, member.rebalance_timeout_ms, member.member_id)
