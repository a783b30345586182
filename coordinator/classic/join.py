"""JoinGroup: decides whether a client may join a group, under which member id, and whether that starts a rebalance. A
static member (KIP-345) that restarts gets a new id and keeps its assignment, usually without a rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.coordinator.classic.events import ClassicTimer, Join
from moldau.coordinator.classic.group import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    GroupState,
    Member,
    classic_group,
)
from moldau.coordinator.classic.rebalance import (
    complete_if_all_joined,
    expect_heartbeat,
    generation_change,
    is_first_rebalance,
    join_refusal,
    join_response,
    new_group_change,
    prepare_rebalance,
    rebalance,
    refuse_join,
    refuse_sync,
)
from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.history import Cause, Client
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.runtime.step import write_error
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.records.record_frames import is_storable

KNOWN_MEMBER_VERSION: Final = 4
"""From this version of JoinGroup on, a dynamic member is first given an id, and then joins with it."""
REBALANCE_TIMEOUT_VERSION: Final = 1
"""The first version of JoinGroup with a rebalance timeout. In an earlier version the session timeout serves as both."""
SKIP_ASSIGNMENT_VERSION: Final = 9
"""From this version of JoinGroup on, the response can tell a restarted leader that the assignment still holds."""


class JoinerState(Enum):
    """The relation of a joining client to the group. The names that end in SAME or CHANGED compare the client's
    protocols with those of its last join.
    """

    UNNAMED = auto()
    """A dynamic member without an id. The coordinator gives it one first (KIP-394)."""
    NEW = auto()
    """A client that may become a member: it has an id that it was given, is static, or uses a version before KIP-394.
    """
    RESTARTED = auto()
    """A static member (KIP-345) that restarted and sends no member id."""
    FOLLOWER_SAME = auto()
    FOLLOWER_CHANGED = auto()
    LEADER_SAME = auto()
    LEADER_CHANGED = auto()


class JoinAction(Enum):
    GIVE_ID = auto()
    """Respond with MEMBER_ID_REQUIRED and a new id."""
    ENTER = auto()
    """Add the client as a member, park its join, and begin a rebalance."""
    REPLACE = auto()
    """Give the static member a new id in place of its former one (`static_member_returns`)."""
    REJOIN = auto()
    """Park the join and begin a rebalance."""
    REPEAT = auto()
    """Respond with the current generation: the client did not receive the earlier response, or joined again without a
    change of its protocols."""


UNNAMED, NEW, RESTARTED, FOLLOWER_SAME, FOLLOWER_CHANGED, LEADER_SAME, LEADER_CHANGED = JoinerState
GIVE_ID, ENTER, REPLACE, REJOIN, REPEAT = JoinAction
JOIN_ACTIONS: Final[Mapping[JoinerState, Mapping[GroupState, JoinAction]]] = {
    UNNAMED: {EMPTY: GIVE_ID, PREPARING: GIVE_ID, COMPLETING: GIVE_ID, STABLE: GIVE_ID},
    NEW: {EMPTY: ENTER, PREPARING: ENTER, COMPLETING: ENTER, STABLE: ENTER},
    RESTARTED: {PREPARING: REPLACE, COMPLETING: REPLACE, STABLE: REPLACE},
    FOLLOWER_SAME: {PREPARING: REJOIN, COMPLETING: REPEAT, STABLE: REPEAT},
    FOLLOWER_CHANGED: {PREPARING: REJOIN, COMPLETING: REJOIN, STABLE: REJOIN},
    # The leader of a stable group may want a new assignment with the same protocols, because the topics may have
    # changed.
    LEADER_SAME: {PREPARING: REJOIN, COMPLETING: REPEAT, STABLE: REJOIN},
    LEADER_CHANGED: {PREPARING: REJOIN, COMPLETING: REJOIN, STABLE: REJOIN},
}
"""The action for a join that is not refused, by the relation of the client to the group and the group's state.

A group that does not exist is created before the action is looked up, and is then Empty.
"""


class GroupWriteOutcome(NamedTuple):
    """The outcome of the write of a new group's first record.

    If the log refuses the record, the join that created the group is refused.
    """

    group_id: str
    waiter: Waiter

    def on_committed(self, step: GroupStep) -> None:
        pass

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        group = classic_group(step.groups, self.group_id)
        for member in [] if group is None else list(group.members.values()):
            if group is not None and member.joining is self.waiter:
                refuse_join(step, group, member, write_error(error), "")


def join_group(step: GroupStep, group: ClassicGroup | None, event: Join) -> None:
    """Handle a JoinGroup. If the join belongs to a rebalance, the response is sent when the join phase ends, otherwise
    at once.
    """
    normalise_join(event)
    request = event.request
    error = join_error(step, group, event)
    if error is not ErrorCode.NONE:
        refuse_join_request(step, event, error)
        return
    if group is None:
        group = new_group(step, event)
    if not has_room(step, group, request.member_id):
        refuse_above_limit(step, group, event)
        return
    if not group.supports(request.protocol_type, request.protocols):
        refuse_join_request(step, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return
    joiner = joiner_of(group, event)
    if isinstance(joiner, ErrorCode):
        refuse_join_request(step, event, joiner)
    else:
        carry_out_join_action(step, group, event, joiner)


def carry_out_join_action(step: GroupStep, group: ClassicGroup, event: Join, joiner: JoinerState) -> None:
    member_id = event.request.member_id
    match JOIN_ACTIONS[joiner][group.state]:
        case JoinAction.GIVE_ID:
            give_member_id(step, group, event)
        case JoinAction.ENTER:
            add_joining_member(step, group, event, member_id or fresh_member_id(event))
        case JoinAction.REPLACE:
            static_member_returns(step, group, event, fresh_member_id(event))
        case JoinAction.REJOIN:
            park_rejoin(step, group, group.members[member_id], event)
        case JoinAction.REPEAT:
            step.reply(event.waiter, join_response(group, member_id, with_members=joiner is LEADER_SAME))


def joiner_of(group: ClassicGroup, event: Join) -> JoinerState | ErrorCode:
    """The relation of the client to the group, or the error if the request has an id that is not a member's."""
    request = event.request
    if not request.member_id:
        if request.group_instance_id is not None:
            return RESTARTED if request.group_instance_id in group.static_members else NEW
        return UNNAMED if event.waiter.version >= KNOWN_MEMBER_VERSION else NEW
    if request.member_id in group.pending_members and request.group_instance_id is None:
        return NEW
    refusal = group.member_error(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        return refusal
    is_same = group.members[request.member_id].protocols == request.protocols
    if request.member_id == group.leader_id:
        return LEADER_SAME if is_same else LEADER_CHANGED
    return FOLLOWER_SAME if is_same else FOLLOWER_CHANGED


def normalise_join(event: Join) -> None:
    """Fill in the rebalance timeout if the request's version lacks it, and keep only the first protocol of each
    name."""
    request = event.request
    if event.waiter.version < REBALANCE_TIMEOUT_VERSION:
        request.rebalance_timeout_ms = request.session_timeout_ms
    by_name: dict[str, JoinGroupRequestProtocol] = {}
    for protocol in request.protocols:
        by_name.setdefault(protocol.name, protocol)
    request.protocols = list(by_name.values())


def join_error(step: GroupStep, group: ClassicGroup | None, event: Join) -> ErrorCode:
    """The error of a join that is refused whatever the state of its group: the request is invalid, or has a member id
    although the group does not exist. NONE if the state decides."""
    error = invalid_join(step, event)
    if error is ErrorCode.NONE and event.request.member_id and group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return error


def invalid_join(step: GroupStep, event: Join) -> ErrorCode:
    """The error of a join that is invalid for any group, because of its names, the size of its metadata or its session
    timeout. NONE if it is valid."""
    request, config = event.request, step.config
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not all(map(is_storable, stored_names_of_join(event))):
        # DIVERGES: Apache Kafka answers UNKNOWN_SERVER_ERROR, after an exception while it builds the record.
        return ErrorCode.INVALID_REQUEST
    if sum(len(protocol.metadata) for protocol in request.protocols) > config.member_metadata_bytes_max:
        # DIVERGES: Apache Kafka keeps the group in memory, and fails with this error when it stores the group.
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def new_group(step: GroupStep, event: Join) -> ClassicGroup:
    """Create an empty group and write its first record. The group remains even if the join is refused afterwards."""
    group = ClassicGroup(event.request.group_id, step.wall_ms)
    step.groups[group.group_id] = group
    step.write(new_group_change(group))
    step.when_committed(GroupWriteOutcome(group.group_id, event.waiter))
    return group


def stored_names_of_join(event: Join) -> list[str]:
    """The names in a join that the group's records will contain: the group id, the protocol type, a new member id, the
    client id and the protocols."""
    request = event.request
    names = [protocol.name for protocol in request.protocols]
    return [request.group_id, request.protocol_type, fresh_member_id(event), event.client_id, *names]


def fresh_member_id(event: Join) -> str:
    """A new id for a member that has none."""
    return f"{event.request.group_instance_id or event.client_id}-{event.fresh_id}"


def refuse_join_request(step: GroupStep, event: Join, error: ErrorCode) -> None:
    add_refusal_to_history(step, event, error)
    step.reply(event.waiter, join_refusal(event.waiter.version, error, event.request.member_id))


def add_refusal_to_history(step: GroupStep, event: Join, error: ErrorCode) -> None:
    client = Client(event.request.member_id, event.client_id, event.client_host)
    step.add_refusal_to_history(event.request.group_id, client, error)


def refuse_other_kind(step: GroupStep, event: Join) -> None:
    """Refuse a join of a group whose kind accepts no classic member. The response has no member id, as in Apache
    Kafka."""
    add_refusal_to_history(step, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    step.reply(event.waiter, join_refusal(event.waiter.version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))


def has_room(step: GroupStep, group: ClassicGroup, member_id: str) -> bool:
    """Whether `group.max.size` admits the member. In a join phase only the members that have joined are counted, so a
    member that rejoins late may be refused.
    """
    member = group.members.get(member_id)
    if group.state is EMPTY:
        return True
    if group.state is PREPARING:
        return (member is not None and member.joining is not None) or group.joining_count < step.config.max_size
    return member is not None or len(group.members) < step.config.max_size


def refuse_above_limit(step: GroupStep, group: ClassicGroup, event: Join) -> None:
    """Refuse a join because the group is full. If the client was a member, it is removed."""
    add_refusal_to_history(step, event, ErrorCode.GROUP_MAX_SIZE_REACHED)
    step.cancel(ClassicTimer.SESSION, group, event.request.member_id)
    group.remove(event.request.member_id)
    step.reply(event.waiter, join_refusal(event.waiter.version, ErrorCode.GROUP_MAX_SIZE_REACHED, ""))


def give_member_id(step: GroupStep, group: ClassicGroup, event: Join) -> None:
    """Give the client a member id, which is valid for one session timeout."""
    member_id = fresh_member_id(event)
    group.pending_members.add(member_id)
    step.schedule(ClassicTimer.SESSION, group, event.request.session_timeout_ms, member_id)
    step.reply(event.waiter, join_refusal(event.waiter.version, ErrorCode.MEMBER_ID_REQUIRED, member_id))


def add_joining_member(step: GroupStep, group: ClassicGroup, event: Join, member_id: str) -> None:
    """Add a new member, with its join parked."""
    request = event.request
    member = new_member(request, member_id, event.client_id, event.client_host)
    member.joining = event.waiter
    if is_first_rebalance(group):
        group.grew = True
    group.add(member)
    # The member has not received its id yet, so it cannot send heartbeats.
    step.schedule(ClassicTimer.SESSION, group, step.config.new_member_join_timeout_ms, member_id)
    rebalance(step, group, step.add_to_history(group.group_id, Cause.JOINED, member, detail=request.reason or ""))


def new_member(request: JoinGroupRequest, member_id: str, client_id: str, client_host: str) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=request.session_timeout_ms if timeout_ms == -1 else timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        is_new=True,
    )


def park_rejoin(step: GroupStep, group: ClassicGroup, member: Member, event: Join) -> None:
    """Park the join of a member that changed its protocols or that rejoins during a rebalance, and begin or continue
    the rebalance."""
    update_member(step, group, member, event)
    rebalance(
        step, group, step.add_to_history(group.group_id, Cause.JOINED_AGAIN, member, detail=event.request.reason or "")
    )


def update_member(step: GroupStep, group: ClassicGroup, member: Member, event: Join) -> None:
    """Update the member from its join request and park the request. An earlier parked join of the member is refused."""
    request = event.request
    group.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    # DIVERGES: Apache Kafka drops the earlier of two parked joins without a response; here that client is told to try
    # again.
    refuse_join(step, group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    group.park_join(member, event.waiter)


class ReturnAction(Enum):
    JOIN = auto()
    """The member counts as joined in the current join phase."""
    REBALANCE = auto()
    """A rebalance begins, because the leader may already be assigning partitions to the former id."""
    STORE = auto()
    """The new id is stored. A rebalance begins only if the group's protocol changes."""


JOIN, REBALANCE, STORE = ReturnAction
RETURN_ACTIONS: Final = {PREPARING: JOIN, COMPLETING: REBALANCE, STABLE: STORE}
"""The action when a static member restarts, by the group's state. An empty group has no members, so it has no
action."""


class MemberReplaced(NamedTuple):
    """The outcome of the record with a restarted static member's new id. Once the record is committed, the parked join
    is answered under that id."""

    group_id: str
    waiter: Waiter
    former_id: str
    member_id: str
    former_leader_id: str
    former: FormerMember

    def on_committed(self, step: GroupStep) -> None:
        found = self._awaiting(step)
        if found is None:
            return
        group, member = found
        waiter = group.take_join(member)
        assert waiter is self.waiter
        is_leader = group.leader_id == member.member_id
        if waiter.version >= SKIP_ASSIGNMENT_VERSION:
            response = join_response(group, member.member_id, with_members=is_leader)
            response.skip_assignment = is_leader
        else:
            # The response names the former id as the leader, so that the member does not compute an assignment.
            response = join_response(group, member.member_id, with_members=False)
            response.leader = self.former_leader_id
        step.reply(waiter, response)

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        """Make the former id valid again, because the record was refused."""
        found = self._awaiting(step)
        if found is None:
            return
        group, member = found
        group.take_join(member)
        group.change_protocols(member, self.former.protocols)
        member.rebalance_timeout_ms = self.former.rebalance_timeout_ms
        member.session_timeout_ms = self.former.session_timeout_ms
        step.cancel(ClassicTimer.SESSION, group, member.member_id)
        expect_heartbeat(step, group, group.replace_static(member.member_id, self.former_id))
        step.reply(self.waiter, join_refusal(self.waiter.version, write_error(error), ""))

    def _awaiting(self, step: GroupStep) -> tuple[ClassicGroup, Member] | None:
        """The group and the member, if the member's join still waits for this record; None otherwise."""
        group = classic_group(step.groups, self.group_id)
        member = None if group is None else group.members.get(self.member_id)
        if group is None or member is None or member.joining is not self.waiter:
            return None
        return group, member


class FormerMember(NamedTuple):
    """The protocols and timeouts of a static member before it restarted."""

    protocols: list[JoinGroupRequestProtocol]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def static_member_returns(step: GroupStep, group: ClassicGroup, event: Join, member_id: str) -> None:
    """Handle the join of a static member that restarted: give the member a new id, which fences the former one, park
    the join, and take the action of `RETURN_ACTIONS` for the group's state."""
    request = event.request
    former_leader_id = group.leader_id or ""
    former_id = group.static_members[request.group_instance_id or ""]
    member = replace_static_member_id(step, group, former_id, member_id)
    former = FormerMember(member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    group.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    group.park_join(member, event.waiter)
    cause = step.add_to_history(group.group_id, Cause.RETURNED, member, detail=request.group_instance_id or "")
    match RETURN_ACTIONS[group.state]:
        case ReturnAction.JOIN:
            complete_if_all_joined(step, group)
        case ReturnAction.REBALANCE:
            prepare_rebalance(step, group, cause)
        case ReturnAction.STORE if group.select_protocol() != group.protocol_name:
            rebalance(step, group, cause)
        case ReturnAction.STORE:
            assignments = {other.member_id: other.assignment for other in group.members.values()}
            step.write(generation_change(group, assignments))
            step.when_committed(
                MemberReplaced(group.group_id, event.waiter, former_id, member_id, former_leader_id, former)
            )


def replace_static_member_id(step: GroupStep, group: ClassicGroup, former_id: str, member_id: str) -> Member:
    """Replace the former id of a static member by its new id. Parked requests of the former id are answered with
    FENCED_INSTANCE_ID."""
    member = group.members[former_id]
    refuse_join(step, group, member, ErrorCode.FENCED_INSTANCE_ID, former_id)
    refuse_sync(step, member, ErrorCode.FENCED_INSTANCE_ID)
    group.replace_static(former_id, member_id)
    step.cancel(ClassicTimer.SESSION, group, former_id)
    expect_heartbeat(step, group, member)
    return member
