"""JoinGroup: who may enter a group, under which id, and whether that starts a rebalance."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.classic.group import Group
from coordinator.classic.group_state import COMPLETING, EMPTY, PREPARING
from coordinator.classic.member import Member
from coordinator.classic.rebalance import is_first_rebalance, join_refusal, joined, rebalance_or_go_on, refuse_join
from coordinator.classic.sessions import expect_new_member
from coordinator.classic.static_join import static_member_returns
from coordinator.group.events import Join
from coordinator.group.records import is_storable, new_group_change
from coordinator.group.step import Turn, write_refusal
from coordinator.runtime.effects import Waiter
from coordinator.runtime.timers import TimerKind
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

KNOWN_MEMBER_VERSION = 4
"""From this version of JoinGroup on, a dynamic member is first told its id and has to come again with it."""
REASON_SIZE_MAX = 255
REBALANCE_TIMEOUT_VERSION = 1
"""Before this version a member's session timeout is its rebalance timeout too."""


class GroupStored(NamedTuple):
    """The first record of a group: where it is refused, so is the join that made the group."""

    group_id: str
    waiter: Waiter

    def committed(self, turn: Turn) -> None:
        pass

    def failed(self, turn: Turn, error: ErrorCode) -> None:
        group = turn.groups.get(self.group_id)
        for member in [] if group is None else list(group.members.values()):
            if group is not None and member.joining is self.waiter:
                refuse_join(turn, group, member, write_refusal(error), "")


def join(turn: Turn, event: Join) -> None:
    """The reply comes now where there is nothing to wait for, else when the rebalance is over."""
    normalise(event)
    request = event.request
    error = refusal_of(turn, event)
    if error is not ErrorCode.NONE:
        refuse(turn, event, error)
        return
    group = turn.groups.get(request.group_id) or new_group(turn, event)
    if not has_room(turn, group, request.member_id):
        make_room_for_nobody(turn, group, event)
    elif not group.supports(request.protocol_type, request.protocols):
        refuse(turn, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id:
        join_with_id(turn, group, event)
    else:
        join_without_id(turn, group, event)


def normalise(event: Join) -> None:
    """What old versions do not say, and what may be said only once: a protocol counts where it is named first."""
    request = event.request
    if event.waiter.version < REBALANCE_TIMEOUT_VERSION:
        request.rebalance_timeout_ms = request.session_timeout_ms
    by_name: dict[str, JoinGroupRequestProtocol] = {}
    for protocol in request.protocols:
        by_name.setdefault(protocol.name, protocol)
    request.protocols = list(by_name.values())


def refusal_of(turn: Turn, event: Join) -> ErrorCode:
    """Why nobody may join like this, NONE where it depends on the group."""
    request, config = event.request, turn.config
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not all(map(is_storable, names_of(event))):
        # DIVERGES: Apache says UNKNOWN_SERVER_ERROR, after an exception on the way to the log.
        return ErrorCode.INVALID_REQUEST
    if sum(len(protocol.metadata) for protocol in request.protocols) > config.member_metadata_bytes_max:
        # DIVERGES: Apache keeps it in memory, and fails with this error when the group is to be stored.
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if request.member_id and request.group_id not in turn.groups:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def new_group(turn: Turn, event: Join) -> Group:
    """An empty group, which is there from now on whatever becomes of the join."""
    group = turn.groups[event.request.group_id] = Group(event.request.group_id, turn.wall_ms)
    turn.write(new_group_change(group))
    turn.when_committed(GroupStored(group.group_id, event.waiter))
    return group


def names_of(event: Join) -> list[str]:
    """All that a join puts into the log as text."""
    request = event.request
    names = [protocol.name for protocol in request.protocols]
    return [request.group_id, request.protocol_type, id_for(event), *names]


def id_for(event: Join) -> str:
    """The id of a member that needs one."""
    return f"{event.request.group_instance_id or event.client_id}-{event.fresh_id}"


def refuse(turn: Turn, event: Join, error: ErrorCode) -> None:
    turn.reply(event.waiter, join_refusal(event.waiter, error, event.request.member_id))


def has_room(turn: Turn, group: Group, member_id: str) -> bool:
    """group.max.size: in a join phase the seats go to those who asked first, whoever was there before."""
    member = group.members.get(member_id)
    if group.state is EMPTY:
        return True
    if group.state is PREPARING:
        return (member is not None and member.joining is not None) or group.joining_count < turn.config.max_size
    return member is not None or len(group.members) < turn.config.max_size


def make_room_for_nobody(turn: Turn, group: Group, event: Join) -> None:
    """The group is full: a member that came too late is out of it."""
    turn.cancel(TimerKind.SESSION, group, event.request.member_id)
    group.remove(event.request.member_id)
    turn.reply(event.waiter, join_refusal(event.waiter, ErrorCode.GROUP_MAX_SIZE_REACHED, ""))


def join_without_id(turn: Turn, group: Group, event: Join) -> None:
    """Somebody new, or a static member that lost its memory."""
    request = event.request
    member_id = id_for(event)
    if request.group_instance_id is not None:
        if request.group_instance_id in group.static_members:
            static_member_returns(turn, group, event, member_id)
        else:
            enter(turn, group, event, member_id)
    elif event.waiter.version >= KNOWN_MEMBER_VERSION:
        group.pending_members.add(member_id)
        turn.schedule(TimerKind.SESSION, group, request.session_timeout_ms, member_id)
        turn.reply(event.waiter, join_refusal(event.waiter, ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        enter(turn, group, event, member_id)


def join_with_id(turn: Turn, group: Group, event: Join) -> None:
    """A member comes again, or for the first time with the id that it was given."""
    request = event.request
    if request.member_id in group.pending_members and request.group_instance_id is None:
        enter(turn, group, event, request.member_id)
        return
    refusal = group.refusal_of(request.member_id, request.group_instance_id)
    if refusal is not ErrorCode.NONE:
        refuse(turn, event, refusal)
        return
    member = group.members[request.member_id]
    is_leader = member.member_id == group.leader_id
    says_again = member.says_again(request.protocols)
    if group.state is PREPARING:
        rejoin(turn, group, member, event)
    elif says_again and (group.state is COMPLETING or not is_leader):
        # It did not get our answer, or it is a follower with nothing new: it may sync in the generation there is.
        # A leader in a stable group wants to plan anew, even if it says the same: the topics may have changed.
        with_members = is_leader and group.state is COMPLETING
        turn.reply(event.waiter, joined(group, member.member_id, with_members=with_members))
    else:
        rejoin(turn, group, member, event)


def enter(turn: Turn, group: Group, event: Join, member_id: str) -> None:
    """A new member, its join parked."""
    request = event.request
    member = new_member(request, member_id, event.client_id, event.client_host)
    member.joining = event.waiter
    if is_first_rebalance(group):
        group.grew = True
    group.add(member)
    expect_new_member(turn, group, member)
    rebalance_or_go_on(turn, group, f"member {member_id!r} joins{said(request)}")


def said(request: JoinGroupRequest) -> str:
    """The client's reason, if it gives one."""
    return f" ({request.reason[:REASON_SIZE_MAX]!r})" if request.reason else ""


def new_member(request: JoinGroupRequest, member_id: str, client_id: str, client_host: str) -> Member:
    patience_ms = request.rebalance_timeout_ms
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=request.session_timeout_ms if patience_ms == -1 else patience_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
        is_new=True,
    )


def rejoin(turn: Turn, group: Group, member: Member, event: Join) -> None:
    """A member brings something new, or follows the call to a rebalance."""
    update(turn, group, member, event)
    rebalance_or_go_on(turn, group, f"member {member.member_id!r} joins again{said(event.request)}")


def update(turn: Turn, group: Group, member: Member, event: Join) -> None:
    """Take over what the join says, and park it in place of one that was parked before."""
    request = event.request
    group.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    # DIVERGES: Apache forgets the earlier of two parked joins; here it is told to try again.
    refuse_join(turn, group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    group.park_join(member, event.waiter)
