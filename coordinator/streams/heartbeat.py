"""StreamsGroupHeartbeat: a member joins with epoch 0, stays with its epoch, and leaves with epoch -1.

A heartbeat passes these steps; each of the first four may raise the epoch of the group:

1. the member is new, or something about it has changed;
2. the group has no topology yet: the first member brings it;
3. the topics of the topology have changed: the topology is configured anew;
4. the settings of the assignor have changed;
5. the group is at an epoch without a target: one is computed, unless it is too early;
6. the member goes a step towards its target.

Nothing changes before the records of all steps are in the log, and the answer waits until they are committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from moldau.coordinator.group.group import Group, GroupStep, TimerKey
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.group.membership import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT_MS,
    Refusal,
    answer_heartbeat,
    fenced_by_epoch,
    group_full_refusal,
    group_not_found,
    heartbeat_interval_of,
    note_rebalance_begun,
    unknown_member,
    wrong_group_kind,
)
from moldau.coordinator.group.metadata_hash import hash_of_topics
from moldau.coordinator.group.records import Change
from moldau.coordinator.group.target import is_too_early, targets_if_small
from moldau.coordinator.streams.configured_topology import (
    INVALID_TOPOLOGY,
    ConfiguredInternalTopic,
    ConfiguredTopology,
    GroupStatus,
    StatusCode,
    configure_topology,
)
from moldau.coordinator.streams.endpoints import partitions_by_endpoint
from moldau.coordinator.streams.events import (
    HeartbeatReply,
    StreamsHeartbeat,
    StreamsTimer,
    heartbeat_response,
    refusal_response,
)
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.heartbeat_validation import refusal_of
from moldau.coordinator.streams.member import Member, MemberState, UserEndpoint, reconcile_member
from moldau.coordinator.streams.membership import remove_member
from moldau.coordinator.streams.records import (
    current_change,
    epoch_change,
    member_change,
    topology_change,
)
from moldau.coordinator.streams.target import StreamsTargetInputs, target_changes
from moldau.coordinator.streams.tasks import NO_TASKS, Tasks, task_set
from moldau.coordinator.streams.topology import Topology, topology_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    TaskIds,
)

CLASSIC: Final = "classic"
"""The kind of group whose place a streams group may take if the group has no members."""
NOT_VALIDATED: Final = -1
NO_TOPICS: Final[Mapping[str, ConfiguredInternalTopic]] = {}
INITIAL_DELAY: Final = GroupStatus(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
INTERVAL: Final = GroupStatus(
    StatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
)


def heartbeat(step: GroupStep, group: Group | None, event: StreamsHeartbeat) -> None:
    decided: HeartbeatReply | Refusal | None = refusal_of(event.request)
    if decided is None and event.request.member_epoch == LEAVE_EPOCH:
        decided = leave(step, group, event.request)
    elif decided is None:
        decided = join_or_stay(step, group, event)
    answer_heartbeat(step, event, decided, refused)


def refused(refusal: Refusal) -> HeartbeatReply:
    return HeartbeatReply(refusal_response(refusal.error, refusal.message), NO_TOPICS)


def leave(step: GroupStep, group: Group | None, request: StreamsGroupHeartbeatRequest) -> HeartbeatReply | Refusal:
    if group is None:
        return group_not_found(request.group_id)
    if not isinstance(group, StreamsGroup):
        return wrong_group_kind(request.group_id, "streams")
    if request.shutdown_application:
        group.note_shutdown(request.member_id)
    member = group.members.get(request.member_id)
    if member is None:
        return unknown_member(request.group_id, request.member_id)
    remove_member(step, group, member, step.add_to_history(group.group_id, Cause.LEFT, member))
    return HeartbeatReply(heartbeat_response(request.member_id, request.member_epoch), NO_TOPICS)


def join_or_stay(step: GroupStep, group: Group | None, event: StreamsHeartbeat) -> HeartbeatReply | Refusal:
    request = event.request
    settings = step.config.streams.of_group(step.image.group_settings(request.group_id))
    entered = group_for_heartbeat(step, group, request)
    if isinstance(entered, Refusal):
        return entered
    update = MemberUpdate(step, event, settings, entered.group, entered.changes)
    refusal = update.refusal_of_member() or update.refusal_of_topology() or update.refusal_of_tasks()
    if refusal is not None:
        return refusal
    update.raise_epoch()
    update.update_target()
    refusal = update.reconcile()
    if refusal is not None:
        return refusal
    answer = update.answer()
    update.begin_timers()
    step.write(*update.changes)
    return answer


class EnteredGroup(NamedTuple):
    """The group of a heartbeat, and the changes that create it. A new group is not in the shard before its records are
    replayed."""

    group: StreamsGroup
    changes: list[Change]


def group_for_heartbeat(
    step: GroupStep, group: Group | None, request: StreamsGroupHeartbeatRequest
) -> EnteredGroup | Refusal:
    is_joining = request.member_epoch == JOIN_EPOCH
    if group is None:
        if not is_joining:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {request.group_id} not found.")
        return EnteredGroup(StreamsGroup(request.group_id), [])
    if not isinstance(group, StreamsGroup):
        if not is_joining or group.type_name != CLASSIC or not group.is_empty:
            return wrong_group_kind(request.group_id, "streams")
        return EnteredGroup(StreamsGroup(request.group_id), group.tombstones())
    if is_joining and group.members_count >= step.config.streams.max_size:
        return group_full_refusal("streams", step.config.streams.max_size)
    return EnteredGroup(group, [])


class MemberUpdate:
    """Handles the heartbeat of a member step by step. The changes are collected, and written after the last step."""

    def __init__(
        self,
        step: GroupStep,
        event: StreamsHeartbeat,
        settings: StreamsGroupSettings,
        group: StreamsGroup,
        changes: list[Change],
    ) -> None:
        self.step = step
        self.event = event
        self.request = event.request
        self.settings = settings
        self.group = group
        self.changes = changes
        self.statuses: list[GroupStatus] = []
        self.epoch = group.epoch
        self.is_joining = event.request.member_epoch == JOIN_EPOCH
        self.must_raise_epoch = False
        self.owned = owned_tasks(event.request)
        self.target_epoch = group.assignment_epoch
        self.target = NO_TASKS
        self.member: Member
        """The member before the heartbeat."""
        self.updated: Member
        self.topology: Topology
        self.configured: ConfiguredTopology

    # 1. The member

    def refusal_of_member(self) -> Refusal | None:
        """Set `member` and `updated` from the heartbeat. Returns a refusal if the heartbeat has another epoch than the
        member."""
        request, group = self.request, self.group
        former = group.members.get(request.member_id)
        if former is None:
            if not self.is_joining:
                return unknown_member(group.group_id, request.member_id)
            former = Member(request.member_id)
        refusal = None if self.is_joining else refusal_of_epoch(former, request, self.owned)
        if refusal is not None:
            return refusal
        tags = None if request.client_tags is None else {tag.key: tag.value for tag in request.client_tags}
        if tags is not None and len(tags) < len(request.client_tags or ()):
            return INVALID_TOPOLOGY
        self.member = former
        self.updated = updated_member(former, self.event, tags)
        if self.updated != former:
            self.must_raise_epoch = True
            self.changes.append(member_change(group.group_id, self.updated))
        return None

    # 2. and 3. The topology

    def refusal_of_topology(self) -> Refusal | None:
        """Set `topology` to that of the group, or of its first member, and `configured` to the comparison of the
        topology with the topics of the cluster. Returns a refusal if the topology is invalid."""
        refusal = self._choose_topology()
        if refusal is not None:
            return refusal
        group, image = self.group, self.step.image
        if group.topology is not None and self.updated.topology_epoch < group.topology.epoch:
            detail = (
                f"The member's topology epoch {self.updated.topology_epoch} is behind "
                f"the group's topology epoch {group.topology.epoch}."
            )
            self.statuses.append(GroupStatus(StatusCode.STALE_TOPOLOGY, detail))
        configured = group.configured
        if configured is None or group.topology is None or group.seen_image != image.version:
            metadata_hash = hash_of_topics(self.topology.required_topics, image)
            if configured is None or group.topology is None or configured.metadata_hash != metadata_hash:
                found = configure_topology(self.topology, partial(partitions_count, self.step), metadata_hash)
                if isinstance(found, Refusal):
                    return found
                configured = found
            group.note_configured(configured, image)
        self.configured = configured
        return None

    def _choose_topology(self) -> Refusal | None:
        own, sent = self.group.topology, self.request.topology
        if sent is None:
            if own is None:
                return INVALID_TOPOLOGY
            self.topology = own
            return None
        topology = topology_of(sent.epoch, sent.subtopologies)
        if topology is None or topology.epoch < 0:
            return INVALID_TOPOLOGY
        if own is None:
            self.changes.append(topology_change(self.group.group_id, topology))
        elif own.epoch <= topology.epoch and own != topology:
            return Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        self.topology = own or topology
        return None

    def refusal_of_tasks(self) -> Refusal | None:
        """The refusal of a heartbeat with tasks that the topology does not have; None if all tasks exist."""
        subtopologies = self.configured.subtopologies
        if not self.configured.is_ready or subtopologies is None:
            return None
        request = self.request
        for each in (*(request.active_tasks or ()), *(request.standby_tasks or ()), *(request.warmup_tasks or ())):
            subtopology = subtopologies.get(each.subtopology_id)
            if subtopology is None:
                return Refusal(
                    ErrorCode.INVALID_REQUEST, f"Subtopology {each.subtopology_id} does not exist in the topology."
                )
            for partition in each.partitions:
                if not 0 <= partition < subtopology.tasks_count:
                    return Refusal(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {each.subtopology_id} is invalid. "
                        f"Number of tasks for this subtopology: {subtopology.tasks_count}",
                    )
        return None

    # 4. The epoch

    def raise_epoch(self) -> None:
        """Raise the epoch of the group if the member, the topology, its topics or the settings of the assignor have
        changed."""
        group = self.group
        validated = self.topology.epoch if self.configured.is_ready else NOT_VALIDATED
        configs = self.settings.assignment_configs
        if (
            self.must_raise_epoch
            or self.configured.metadata_hash != group.metadata_hash
            or validated != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            self.epoch += 1
            is_other = self.must_raise_epoch
            note_rebalance_begun(self.step, group, self.epoch, self.updated, is_subscription_changed=is_other)
            self.changes.append(
                epoch_change(
                    group.group_id,
                    self.epoch,
                    self.configured.metadata_hash,
                    validated,
                    configs,
                    group.description_epochs,
                )
            )

    # 5. The target

    def update_target(self) -> None:
        """Compute a target for the group's epoch, unless the initial delay or the assignment interval is not over."""
        group, step = self.group, self.step
        self.target = group.target_of(self.updated.member_id)
        if self._is_initial_delay():
            self.statuses.append(INITIAL_DELAY)
            self.target = NO_TASKS
        elif group.assignment_epoch < self.epoch:
            if is_too_early(group.assignment_ms, self.settings.assignment_interval_ms, step.wall_ms):
                self.statuses.append(INTERVAL)
                return
            members = {**group.members, self.updated.member_id: self.updated}
            inputs = StreamsTargetInputs(
                {**group.targets}, members, self.configured, self.settings.num_standby_replicas
            )
            targets = targets_if_small(step, TimerKey(StreamsTimer.TARGET, group.group_id), self.epoch, inputs)
            if targets is not None:
                self.changes += target_changes(group, self.epoch, targets, step.wall_ms)
                self.target_epoch, self.target = self.epoch, targets[self.updated.member_id]

    def _is_initial_delay(self) -> bool:
        key = TimerKey(StreamsTimer.INITIAL_REBALANCE, self.group.group_id)
        is_first = self.group.is_empty and self.settings.initial_rebalance_delay_ms > 0
        return is_first or self.step.timers.has(key)

    # 6. The member's tasks

    def reconcile(self) -> Refusal | None:
        """Move the member a step towards its target. Returns a refusal if the member must be fenced."""
        if self.updated.is_reconciled_to(self.target_epoch):
            return None
        if has_doubles(self.request):
            return INVALID_TOPOLOGY
        found = reconcile_member(self.updated, self.target_epoch, self.target, self.group.owners, self.owned)
        if found is None:
            return Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        if found != self.updated:
            self.updated = found
            self.changes.append(current_change(self.group.group_id, found))
        return None

    # The answer

    def answer(self) -> HeartbeatReply:
        group, updated, request = self.group, self.updated, self.request
        response = heartbeat_response(updated.member_id, updated.epoch)
        is_waiting = updated.state is MemberState.UNRELEASED_TASKS or self.target_epoch < self.epoch
        response.heartbeat_interval_ms = heartbeat_interval_of(
            self.step, len(group.members), self.settings.heartbeat_interval_ms, is_waiting=is_waiting
        )
        if self.is_joining or updated.assigned != self.member.assigned:
            response.active_tasks = task_ids(updated.assigned.active)
            response.standby_tasks = task_ids(updated.assigned.standby)
            response.warmup_tasks = task_ids(updated.assigned.warmup)
            if updated.user_endpoint is not None:
                group.note_endpoint_change()
        if group.endpoint_epoch != request.endpoint_information_epoch:
            others = [other for key, other in group.members.items() if key != updated.member_id]
            response.partitions_by_user_endpoint = partitions_by_endpoint(
                [*others, updated], self.configured, partial(partitions_count, self.step)
            )
        if group.group_id in self.step.groups:
            response.endpoint_information_epoch = group.endpoint_epoch
        if self.configured.problem is not None:
            self.statuses.append(self.configured.problem)
        if request.shutdown_application:
            group.note_shutdown(updated.member_id)
        if group.shutdown_member_id is not None:
            self.statuses.append(shutdown_status(group.shutdown_member_id))
        response.status = [Status(status_code=each.code, status_detail=each.detail) for each in self.statuses]
        return HeartbeatReply(response, self.configured.topics_to_create)

    def begin_timers(self) -> None:
        """Restart the session timer, start or cancel the timer of revocations, and start the initial delay of a new
        group."""
        step, group, updated = self.step, self.group, self.updated
        step.schedule(StreamsTimer.SESSION, group, self.settings.session_timeout_ms, updated.member_id)
        if updated.state is not MemberState.UNREVOKED_TASKS:
            step.cancel(StreamsTimer.REBALANCE, group, updated.member_id)
        elif updated.epoch != self.member.epoch or self.member.state is not updated.state:
            step.schedule(StreamsTimer.REBALANCE, group, updated.rebalance_timeout_ms, updated.member_id)
        key = TimerKey(StreamsTimer.INITIAL_REBALANCE, group.group_id)
        delay_ms = self.settings.initial_rebalance_delay_ms
        if group.is_empty and delay_ms > 0 and not step.timers.has(key):
            step.schedule(StreamsTimer.INITIAL_REBALANCE, group, delay_ms)


def updated_member(former: Member, event: StreamsHeartbeat, tags: Mapping[str, str] | None) -> Member:
    """The member with the fields of the heartbeat. A field that the heartbeat leaves out keeps its value."""
    request = event.request
    endpoint = request.user_endpoint
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        former,
        rack_id=former.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=former.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT_MS else timeout_ms,
        topology_epoch=former.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=event.client_id,
        client_host=event.client_host,
        process_id=former.process_id if request.process_id is None else request.process_id,
        client_tags=former.client_tags if tags is None else tags,
        user_endpoint=former.user_endpoint if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
    )


def refusal_of_epoch(member: Member, request: StreamsGroupHeartbeatRequest, owned: Tasks | None) -> Refusal | None:
    """The refusal of a heartbeat whose epoch is not accepted; None if it is. The member's own epoch is accepted. Its
    previous epoch is accepted if the member owns only tasks that it was given, because the response with the new epoch
    may be lost."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return None
    if epoch == member.previous_epoch and epoch < member.epoch and member.owns_only_assigned(owned):
        return None
    return fenced_by_epoch("streams", epoch, member.epoch)


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """The tasks that the member reports to own; None if the request does not report all three roles."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(task_set(request.active_tasks), task_set(request.standby_tasks), task_set(request.warmup_tasks))


def has_doubles(request: StreamsGroupHeartbeatRequest) -> bool:
    """Whether the request lists a subtopology twice in the same role."""
    lists = (request.active_tasks or (), request.standby_tasks or (), request.warmup_tasks or ())
    return any(len({each.subtopology_id for each in listed}) < len(listed) for listed in lists)


def partitions_count(step: GroupStep, name: str) -> int | None:
    topic = step.image.topic_of_name(name)
    return None if topic is None else topic.partitions_count


def shutdown_status(member_id: str) -> GroupStatus:
    return GroupStatus(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and "
        "requested a shutdown for the entire application.",
    )


def task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=key, partitions=sorted(tasks[key])) for key in sorted(tasks)]
