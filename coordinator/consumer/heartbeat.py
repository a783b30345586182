"""ConsumerGroupHeartbeat: a member joins with epoch 0, stays with its epoch, and leaves with epoch -1 (or -2).

A heartbeat has only those fields of the member that have changed, and its response has the assignment only if that has
changed. A response may be lost, so a member may send its previous epoch, provided that it owns only partitions that the
coordinator gave it. Any other wrong epoch fences the member, which then gives up its partitions and joins again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from moldau.coordinator.consumer.conversion import consumer_group_for_heartbeat
from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.consumer.group import ConsumerGroup, ConsumerTimer, settings_of
from moldau.coordinator.consumer.leaving import remove_members, temporary_leave_changes
from moldau.coordinator.consumer.member import (
    ConsumerMember,
    MemberState,
    PartitionEpochs,
    pattern_of,
)
from moldau.coordinator.consumer.member_update import MemberUpdate, replaced_static_member
from moldau.coordinator.consumer.reconciliation import OwnedPartitions
from moldau.coordinator.consumer.regular_expressions import resolve_if_due
from moldau.coordinator.group.group import Group, GroupStep, SettledHeartbeat, TimerKey
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.coordinator.group.membership import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_TIMEOUT_MS,
    HeartbeatRule,
    Refusal,
    answer_heartbeat,
    fenced_by_epoch,
    first_broken_rule,
    group_full_refusal,
    group_not_found,
    heartbeat_interval_of,
    is_blank,
    unknown_member,
    wrong_group_kind,
)
from moldau.coordinator.group.records import Change
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.records.record_frames import is_storable

MEMBER_ID_VERSION = 1
"""From this version of ConsumerGroupHeartbeat on, a member generates its id itself (KIP-1082)."""


def heartbeat(step: GroupStep, group: Group | None, event: ConsumerHeartbeat) -> None:
    request = event.request
    decided: Refusal | ConsumerGroupHeartbeatResponse | None = prolong_session_if_settled(step, group, event)
    if decided is None:
        settings = settings_of(step, request.group_id)
        decided = invalid_request(event, settings)
        if decided is None and request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            decided = leave(step, group, request)
        elif decided is None:
            decided = join_or_stay(step, group, event, settings)
    answer_heartbeat(step, event, decided, refused)


def reply_if_settled(step: GroupStep, group: Group | None, event: ConsumerHeartbeat) -> None:
    """Reply to a heartbeat that only prolongs the session of its member. Any other heartbeat gets no reply here and is
    handled by `heartbeat` later."""
    answer = prolong_session_if_settled(step, group, event)
    if answer is not None:
        step.reply(event.waiter, answer)


def prolong_session_if_settled(
    step: GroupStep, group: Group | None, event: ConsumerHeartbeat
) -> ConsumerGroupHeartbeatResponse | None:
    """Prolong the session of a member and return the response. Returns None if the heartbeat does more than prolong a
    session."""
    if not isinstance(group, ConsumerGroup) or not is_settled(step, group, event):
        return None
    settings = settings_of(step, event.request.group_id)
    step.schedule(ConsumerTimer.SESSION, group, settings.session_timeout_ms, event.request.member_id)
    return settled_response(event.request, settings)


def settled_response(
    request: ConsumerGroupHeartbeatRequest, settings: ConsumerGroupSettings
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
    )


def settled_heartbeat(step: GroupStep, group: ConsumerGroup, event: ConsumerHeartbeat) -> SettledHeartbeat | None:
    """The heartbeat as a `SettledHeartbeat`, if it only prolongs the session of its member; otherwise None."""
    if not is_settled(step, group, event):
        return None
    request, settings = event.request, settings_of(step, event.request.group_id)
    member = group.members[request.member_id]
    return SettledHeartbeat(
        group,
        member,
        request.member_epoch,
        request.instance_id,
        TimerKey(ConsumerTimer.SESSION, group.group_id, member.member_id),
        settings.session_timeout_ms,
        step.config,
        step.image,
        settled_response(request, settings),
    )


def is_still_settled(group: ConsumerGroup, heartbeat: SettledHeartbeat) -> bool:
    """Whether a repetition of this settled heartbeat still only prolongs the member's session. A member is an immutable
    value, so comparing the objects compares all of its fields.
    """
    member_id, instance_id = heartbeat.timer.member_id, heartbeat.instance_id
    return (
        group.members.get(member_id) is heartbeat.member
        and heartbeat.epoch == group.assignment_epoch == group.epoch
        and (instance_id is None or group.static_members.get(instance_id) == member_id)
        and not group.subscriptions.regexes
        and group.has_seen(heartbeat.image)
    )


def is_settled(step: GroupStep, group: ConsumerGroup, event: ConsumerHeartbeat) -> bool:
    """Whether a heartbeat only prolongs the session of its member: it reports no changed field, the member has reached
    its target, and the topics of the group have not changed. `join_or_stay` would change nothing then. Nearly all
    heartbeats are of this kind.
    """
    request = event.request
    if (
        request.topic_partitions is not None
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.server_assignor is not None
        or request.rack_id is not None
        or request.rebalance_timeout_ms != -1
    ):
        return False
    member, epoch, instance_id = group.members.get(request.member_id), request.member_epoch, request.instance_id
    return (
        member is not None
        and epoch == member.epoch == group.assignment_epoch == group.epoch
        and member.state is MemberState.STABLE
        and member.classic is None
        and member.client_id == event.client_id
        and member.client_host == event.client_host
        and (instance_id is None or group.static_members.get(instance_id) == request.member_id)
        and not group.subscriptions.regexes
        and group.has_seen(step.image)
    )


def refused(refusal: Refusal) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=refusal.error, error_message=refusal.message, member_epoch=0, heartbeat_interval_ms=0
    )


def needs_member_id(event: ConsumerHeartbeat) -> bool:
    epoch = event.request.member_epoch
    return event.waiter.version >= MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH


def is_join(event: ConsumerHeartbeat) -> bool:
    return event.request.member_epoch == JOIN_EPOCH


INVALID: Final[tuple[HeartbeatRule[ConsumerHeartbeat], ...]] = (
    HeartbeatRule(
        lambda event: needs_member_id(event) and is_blank(event.request.member_id), "MemberId can't be empty."
    ),
    HeartbeatRule(lambda event: is_blank(event.request.group_id), "GroupId can't be empty."),
    HeartbeatRule(
        lambda event: not is_storable(event.request.group_id) or not is_storable(event.request.member_id),
        "the group id or the member id is too long",
    ),
    HeartbeatRule(lambda event: is_blank(event.request.instance_id), "InstanceId can't be empty."),
    HeartbeatRule(lambda event: is_blank(event.request.rack_id), "RackId can't be empty."),
    HeartbeatRule(
        lambda event: is_join(event) and event.request.rebalance_timeout_ms == NO_TIMEOUT_MS,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    HeartbeatRule(
        lambda event: is_join(event) and event.request.topic_partitions != [],
        "TopicPartitions must be empty when (re-)joining.",
    ),
    HeartbeatRule(
        lambda event: (
            is_join(event)
            and event.request.subscribed_topic_names is None
            and event.request.subscribed_topic_regex is None
        ),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    HeartbeatRule(
        lambda event: event.request.member_epoch == LEAVE_STATIC_EPOCH and event.request.instance_id is None,
        "InstanceId can't be null.",
    ),
    HeartbeatRule(lambda event: event.request.member_epoch < LEAVE_STATIC_EPOCH, "MemberEpoch is invalid."),
)


def invalid_request(event: ConsumerHeartbeat, settings: ConsumerGroupSettings) -> Refusal | None:
    """The refusal of a request that is invalid for any group; None if the request is valid."""
    assignor = event.request.server_assignor
    invalid = first_broken_rule(INVALID, event)
    if invalid is None and assignor is not None and assignor not in settings.assignors:
        known = ", ".join(settings.assignors)
        message = f"ServerAssignor {assignor} is not supported. Supported assignors: {known}."
        return Refusal(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return invalid


def leave(
    step: GroupStep, group: Group | None, request: ConsumerGroupHeartbeatRequest
) -> Refusal | ConsumerGroupHeartbeatResponse:
    """Remove a member from the group. The partitions of a static member that leaves with epoch -2 stay reserved for its
    instance id."""
    if not isinstance(group, ConsumerGroup):
        return group_not_found(request.group_id) if group is None else wrong_group_kind(request.group_id, "consumer")
    response = ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
    )
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            return unknown_member(request.group_id, request.member_id)
    else:
        found = _static_member(group, request.instance_id, request.member_id)
        if isinstance(found, Refusal):
            return found
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            step.add_to_history(group.group_id, Cause.LEFT_FOR_A_WHILE, found, detail=request.instance_id)
            step.write(*temporary_leave_changes(group, found))
            return response
        member = found
    remove_members(step, group, [member], Cause.LEFT)
    return response


def join_or_stay(
    step: GroupStep, known: Group | None, event: ConsumerHeartbeat, settings: ConsumerGroupSettings
) -> Refusal | ConsumerGroupHeartbeatResponse:
    """Handle the heartbeat of a member that joins or stays: write the changes and return the response."""
    request = event.request
    is_joining = is_join(event)
    converted = consumer_group_for_heartbeat(step, known, request.group_id, is_join=is_joining)
    if isinstance(converted, Refusal):
        return converted
    group, changes = converted.group, [*converted.changes]
    limit = step.config.consumer.max_size
    if not group.has_room(limit, request.member_id, request.instance_id):
        return group_full_refusal("consumer", limit)
    member_id = request.member_id or event.fresh_id
    owned = _owned(request.topic_partitions)
    found = _member(group, member_id, request, owned, changes)
    if isinstance(found, Refusal):
        return found
    update = MemberUpdate(step, group, settings, found, _with_request(found, event), changes)
    fault = update.change_subscription()
    if fault is None:
        update.update_target()
        fault = update.reconcile(owned)
    if fault is not None:
        return fault
    resolve_if_due(step, group, found, update.updated, event.client)
    former = group.static_member(request.instance_id) if is_joining and request.instance_id is not None else None
    if former is not None and former.member_id != member_id:
        step.add_to_history(group.group_id, Cause.RETURNED, update.updated, detail=request.instance_id or "")
    converted.finish(step)
    step.write(*update.changes)
    step.schedule(ConsumerTimer.SESSION, group, settings.session_timeout_ms, member_id)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    is_told = is_joining or is_full or found.assigned != update.updated.assigned
    interval_ms = heartbeat_interval_of(
        step, len(group.members), settings.heartbeat_interval_ms, is_waiting=is_waiting(update)
    )
    return ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=update.updated.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=_assignment(update.updated.assigned) if is_told else None,
    )


def is_waiting(update: MemberUpdate) -> bool:
    """Whether the member waits: for other members to release partitions of its target, for the target of the group's
    epoch, or for the first resolution of its regular expression."""
    member = update.updated
    pattern = pattern_of(member)
    return (
        member.state is MemberState.UNRELEASED_PARTITIONS
        or update.target_epoch < update.epoch
        or (pattern is not None and pattern not in update.group.resolved)
    )


def _with_request(member: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerMember:
    """The member, changed to the fields of the heartbeat. A field that the request leaves out keeps its value."""
    request = event.request
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    if (
        names is None
        and timeout_ms == -1
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and (request.instance_id, request.rack_id) in ((None, None), (member.instance_id, None))
        and (member.client_id, member.client_host, member.classic) == (event.client_id, event.client_host, None)
    ):
        return member
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else frozenset(names),
        subscribed_regex=(
            member.subscribed_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
        ),
        client_id=event.client_id,
        client_host=event.client_host,
        classic=None,
    )


def _member(
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerGroupHeartbeatRequest,
    owned: OwnedPartitions | None,
    changes: list[Change],
) -> ConsumerMember | Refusal:
    """Find the member that sent a heartbeat, or make a new member if the heartbeat is one that joins. Returns a refusal
    if the member is unknown or fenced, or if its instance id is in use.

    If a static member has returned under a new member id, the records that replace the former member are added to
    `changes`.
    """
    is_join = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            return ConsumerMember(member_id) if is_join else unknown_member(group.group_id, member_id)
        return _fenced(member, request.member_epoch, owned) or member
    if not is_join:
        found = _static_member(group, request.instance_id, member_id)
        return found if isinstance(found, Refusal) else _fenced(found, request.member_epoch, owned) or found
    former = group.static_member(request.instance_id)
    if former is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if former.classic is None and former.epoch != LEAVE_STATIC_EPOCH:
        return Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {former.member_id} member.",
        )
    member, replacing = replaced_static_member(group, former, member_id)
    changes += replacing
    return member


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember | Refusal:
    member = group.static_member(instance_id)
    if member is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        return Refusal(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def _fenced(member: ConsumerMember, epoch: int, owned: OwnedPartitions | None) -> Refusal | None:
    """The refusal that fences the member because of the epoch in its request; None if the epoch is accepted."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return None
    if epoch == member.previous_epoch and epoch < member.epoch and owned is not None:
        assigned = member.assigned
        if all(topic in assigned and assigned[topic].keys() >= set(indexes) for topic, indexes in owned.items()):
            return None
    return fenced_by_epoch("consumer", epoch, member.epoch)


def _owned(topics: Iterable[TopicPartitions] | None) -> OwnedPartitions | None:
    if topics is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for topic in topics:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _assignment(partitions: PartitionEpochs) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs)) for topic_id, epochs in partitions.items()
        ]
    )
