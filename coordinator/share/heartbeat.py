"""ShareGroupHeartbeat: a member joins with epoch 0, stays with its epoch, and leaves with epoch -1. The steps of a
heartbeat:

1. the member is new, or something about it has changed;
2. its subscription, the subscribed topics, or the share partitions that may be assigned have changed: the group gets
   its next epoch;
3. the group is at an epoch without a target: one is computed, unless it is too early;
4. the member gets its target;
5. share partitions of subscribed topics that have no state yet are initialized.

Nothing changes before the records of all steps are in the log, and the answer waits until they are committed.
"""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.group import Group, GroupStep, SettledHeartbeat, TimerKey
from moldau.coordinator.group.history import Cause, GroupEvent
from moldau.coordinator.group.membership import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    HeartbeatRule,
    Refusal,
    answer_heartbeat,
    fenced_by_epoch,
    first_broken_rule,
    group_full_refusal,
    group_not_found,
    heartbeat_interval_of,
    is_blank,
    note_rebalance_begun,
    unknown_member,
    wrong_group_kind,
)
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.target import is_too_early, targets_if_small
from moldau.coordinator.share.assignor import NOTHING
from moldau.coordinator.share.events import ShareHeartbeat
from moldau.coordinator.share.group import ShareGroup, ShareTimer
from moldau.coordinator.share.records import (
    Member,
    current_change,
    epoch_change,
    grouped_by_topic,
    member_change,
    member_tombstones,
)
from moldau.coordinator.share.state_topics import NO_PARTITIONS, initialize_new, partitions_by_topic
from moldau.coordinator.share.target import ShareTargetInputs, target_changes, topic_ids
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBER_ID_LENGTH_MAX: Final = 36
"""The largest length of a member id (characters): that of a UUID as text."""
INVALID: Final[tuple[HeartbeatRule[ShareGroupHeartbeatRequest], ...]] = (
    HeartbeatRule(lambda request: not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX, None),
    HeartbeatRule(lambda request: is_blank(request.member_id), "MemberId can't be empty."),
    HeartbeatRule(lambda request: is_blank(request.group_id), "GroupId can't be empty."),
    HeartbeatRule(lambda request: is_blank(request.rack_id), "RackId can't be empty."),
    HeartbeatRule(
        lambda request: request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names,
        "SubscribedTopicNames must be set in first request.",
    ),
    HeartbeatRule(lambda request: request.member_epoch < LEAVE_EPOCH, "MemberEpoch is invalid."),
)


def heartbeat(step: GroupStep, group: Group | None, event: ShareHeartbeat) -> None:
    answer_heartbeat(step, event, first_broken_rule(INVALID, event.request) or decide(step, group, event), refused)


def settled_heartbeat(step: GroupStep, group: ShareGroup, event: ShareHeartbeat) -> SettledHeartbeat | None:
    """The heartbeat as a `SettledHeartbeat`, if it only prolongs the session of its member; otherwise None.

    It must state no field of the member, the member must be at the epoch of the group, and an earlier heartbeat must
    have found nothing to do for the group. `MemberUpdate` would change nothing then.
    """
    request = event.request
    member = group.members.get(request.member_id)
    if (
        member is None
        or request.rack_id is not None
        or request.subscribed_topic_names is not None
        or request.member_epoch != member.epoch
        or (event.client_id, event.client_host) != (member.client_id, member.client_host)
    ):
        return None
    settings = step.config.share.of_group(step.image.group_settings(group.group_id))
    settled = SettledHeartbeat(
        group,
        member,
        member.epoch,
        None,
        TimerKey(ShareTimer.SESSION, group.group_id, member.member_id),
        settings.session_timeout_ms,
        step.config,
        step.image,
        response_to(member.member_id, member.epoch, settings.heartbeat_interval_ms),
    )
    return settled if is_still_settled(group, settled) else None


def is_still_settled(group: ShareGroup, heartbeat: SettledHeartbeat) -> bool:
    """Whether a repetition of this settled heartbeat still only prolongs the member's session. A member is an immutable
    value, so comparing the objects compares all of its fields."""
    return (
        group.members.get(heartbeat.timer.member_id) is heartbeat.member
        and heartbeat.epoch == group.assignment_epoch == group.epoch
        and group.is_settled(heartbeat.image)
    )


def refused(refusal: Refusal) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        error_code=refusal.error, error_message=refusal.message, member_epoch=0, heartbeat_interval_ms=0
    )


def decide(step: GroupStep, group: Group | None, event: ShareHeartbeat) -> Refusal | ShareGroupHeartbeatResponse:
    request = event.request
    if group is None and request.member_epoch == LEAVE_EPOCH:
        return group_not_found(request.group_id)
    if group is None and request.member_epoch != JOIN_EPOCH:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")
    if group is not None and not isinstance(group, ShareGroup):
        return wrong_group_kind(request.group_id, "share")
    own = ShareGroup(request.group_id) if group is None else group
    member = own.members.get(request.member_id)
    if request.member_epoch == LEAVE_EPOCH:
        if member is None:
            return unknown_member(request.group_id, request.member_id)
        remove_member(step, own, member, step.add_to_history(own.group_id, Cause.LEFT, member))
        return response_to(request.member_id, request.member_epoch, 0)
    if member is None and own.members_count >= step.config.share.max_size:
        return group_full_refusal("share", step.config.share.max_size)
    if member is None:
        if request.member_epoch != JOIN_EPOCH:
            return unknown_member(request.group_id, request.member_id)
        member = Member(request.member_id)
    fenced = member_epoch_refusal(member, request.member_epoch)
    return fenced if fenced is not None else MemberUpdate(step, own, member, event).answer()


def member_epoch_refusal(member: Member, received: int) -> Refusal | None:
    """The refusal of a heartbeat whose epoch is neither the member's epoch nor its previous epoch; None if the epoch is
    accepted.
    """
    if received in (JOIN_EPOCH, member.epoch):
        return None
    if received > member.epoch:
        return fenced_by_epoch("share", received, member.epoch)
    if received == member.previous_epoch:
        return None
    previous = f", and it does not match the previous member epoch ({member.previous_epoch})"
    return fenced_by_epoch("share", received, member.epoch, previous)


class MemberUpdate:
    """Handles the heartbeat of a member that joins or stays."""

    def __init__(self, step: GroupStep, group: ShareGroup, member: Member, event: ShareHeartbeat) -> None:
        request = event.request
        self._step = step
        self._group = group
        self._member = member
        """The member before the request; a new member has the epoch 0."""
        self._request = request
        self._settings = step.config.share.of_group(step.image.group_settings(group.group_id))
        names = request.subscribed_topic_names
        self._updated = member._replace(
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            topics=member.topics if names is None else frozenset(names),
            client_id=event.client_id,
            client_host=event.client_host,
        )
        self._epoch = group.epoch
        self._is_raised = False
        self._target_epoch = group.assignment_epoch
        self._target = group.targets.get(member.member_id, NOTHING)

    def answer(self) -> ShareGroupHeartbeatResponse:
        step, group = self._step, self._group
        is_settled = self._updated == self._member and group.is_settled(step.image)
        if not is_settled:
            self._raise_epoch()
        self._update_target()
        self._reconcile()
        updated = self._updated
        if group.group_id in step.groups:
            step.schedule(ShareTimer.SESSION, group, self._settings.session_timeout_ms, updated.member_id)
        else:
            key = TimerKey(ShareTimer.SESSION, group.group_id, updated.member_id)
            step.timers.schedule(key, step.now_ms + self._settings.session_timeout_ms)
        is_initializing = False
        if not is_settled:
            is_initializing = initialize_new(step, group, group.topics_with(updated), self._epoch)
            if not step.changes:
                group.note_settled(step.image)
        is_waiting = is_initializing or bool(group.state_topics.initializing) or self._target_epoch < self._epoch
        interval_ms = heartbeat_interval_of(
            step, group.members_count, self._settings.heartbeat_interval_ms, is_waiting=is_waiting
        )
        response = response_to(updated.member_id, updated.epoch, interval_ms)
        is_full = self._request.subscribed_topic_names is not None
        if self._request.member_epoch == JOIN_EPOCH or is_full or updated.assigned != self._member.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                    for each in grouped_by_topic(updated.assigned)
                ]
            )
        return response

    def _raise_epoch(self) -> None:
        step, group, updated = self._step, self._group, self._updated
        if updated != self._member or updated.member_id not in group.members:
            step.write(member_change(group.group_id, updated))
            self._is_raised = updated.topics != self._member.topics
        is_told = True
        if not self._is_raised and group.assignment_epoch >= group.epoch:
            self._is_raised = awaits_assignment(step, group)
            # It ends what a join or a new partition began, and that is told.
            is_told = not self._is_raised or updated.member_id not in group.members
        if not self._is_raised and group.seen_image == step.image.version:
            return
        metadata_hash = hash_of_topics(group.topics_with(updated), step.image)
        if metadata_hash != group.metadata_hash:
            self._is_raised = is_told = True
        elif not self._is_raised:
            group.seen_image = step.image.version
        if self._is_raised:
            self._epoch += 1
            is_other = updated.topics != self._member.topics
            if is_told:
                note_rebalance_begun(step, group, self._epoch, updated, is_subscription_changed=is_other)
            else:
                step.rebalances.begun[group.type_name] += 1
            step.write(epoch_change(group.group_id, self._epoch, metadata_hash))

    def _update_target(self) -> None:
        """Compute a target for the group's epoch, unless the group has it already or the assignment interval is not
        over."""
        step, group, member_id = self._step, self._group, self._updated.member_id
        waits = is_too_early(group.assignment_ms, self._settings.assignment_interval_ms, step.wall_ms)
        if group.assignment_epoch >= self._epoch or waits:
            return
        members = {**group.members, member_id: self._updated}
        inputs = ShareTargetInputs(members, group.state_topics.initialized, {**group.targets}, step.image)
        targets = targets_if_small(step, TimerKey(ShareTimer.TARGET, group.group_id), self._epoch, inputs)
        if targets is not None:
            step.write(*target_changes(group, targets, self._epoch, step.wall_ms))
            self._target_epoch, self._target = self._epoch, targets[member_id]

    def _reconcile(self) -> None:
        """Assign the target to the member, without topics to which it no longer subscribes."""
        step, member = self._step, self._updated
        is_behind = self._target_epoch != member.epoch
        if not is_behind and not self._is_raised:
            return
        subscribed = topic_ids(step.image, member.topics)
        changed = member._replace(assigned=frozenset(each for each in self._target if each[0] in subscribed))
        if is_behind:
            changed = changed._replace(epoch=self._target_epoch, previous_epoch=member.epoch)
        if changed != member:
            step.write(current_change(self._group.group_id, changed))
        self._updated = changed


def response_to(member_id: str, member_epoch: int, heartbeat_interval_ms: int) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        member_id=member_id, member_epoch=member_epoch, heartbeat_interval_ms=heartbeat_interval_ms
    )


def awaits_assignment(step: GroupStep, group: ShareGroup) -> bool:
    """Whether the targets differ from the initialized share partitions of subscribed topics: one of these is in no
    target yet, or a target has a partition that is not initialized any more.

    DIVERGES: a topic that was deleted while its group had no coordinator stays in the group's record. In Apache Kafka
    it also counts here, if a topic of the same name exists again: then every heartbeat raises the epoch.
    """
    if not group.members or not group.state_topics.initialized:
        return False
    subscribed = group.topics_with(None)
    assigned = partitions_by_topic(frozenset[tuple[bytes, int]]().union(*group.targets.values()))
    return any(
        topic.name in subscribed
        and step.image.topic_of_id(topic_id) is not None
        and topic.partitions != assigned.get(topic_id, NO_PARTITIONS)
        for topic_id, topic in group.state_topics.initialized.items()
    )


def remove_member(step: GroupStep, group: ShareGroup, member: Member, cause: GroupEvent) -> None:
    """Remove a member and raise the epoch of the group. The next heartbeat of another member computes the new
    target."""
    step.cancel(ShareTimer.SESSION, group, member.member_id)
    left = group.topics_with(None, without=member.member_id)
    step.write(
        *member_tombstones(group.group_id, member.member_id),
        epoch_change(group.group_id, group.epoch + 1, hash_of_topics(left, step.image)),
    )
    step.add_rebalance_to_history(group.group_id, cause, group.epoch + 1)


def on_timer(step: GroupStep, group: ShareGroup, key: TimerKey) -> None:
    member = group.members.get(key.member_id)
    if member is not None:
        settings = step.config.share.of_group(step.image.group_settings(group.group_id))
        cause = step.add_to_history(group.group_id, Cause.SESSION_EXPIRED, member, number=settings.session_timeout_ms)
        step.note(group, cause.text)
        remove_member(step, group, member, cause)


def on_loaded(step: GroupStep, group: ShareGroup) -> None:
    """Begin the sessions of all members when the partition is loaded, so that the members have time to find this
    coordinator."""
    settings = step.config.share.of_group(step.image.group_settings(group.group_id))
    for member_id in group.members:
        step.schedule(ShareTimer.SESSION, group, settings.session_timeout_ms, member_id)
