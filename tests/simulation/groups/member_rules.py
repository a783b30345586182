"""The members of each generation: which clients may be taken for members, which leads, which is removed, and when."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.classic.group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup, GroupState
from moldau.coordinator.group import events
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.runtime import machine
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse
from moldau.protocol.messages.offset_commit import OffsetCommitResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from tests.simulation.groups.log_rules import LogRules
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.drawn_stage import Asked, Watcher
from tests.support.drawn_steps import Violation
from tests.support.group_stage import classic_groups
from tests.support.machine_stage import Batch

NOT_TAKEN = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    }
)
READS = (
    classic_events.Heartbeat,
    events.CommitOffsets,
    events.CommitTransactionalOffsets,
    events.EndOffsetsTransaction,
    events.FetchStableOffsets,
    events.DeleteOffsets,
    events.TopicsDeleted,
)
"""None of these ends a generation."""
MEMBERS_REQUESTS = (
    classic_events.Heartbeat,
    classic_events.Sync,
    events.CommitOffsets,
    events.CommitTransactionalOffsets,
)
MemberKey: TypeAlias = tuple[str, str]


class Seen(NamedTuple):
    """A member."""

    instance: str | None
    session_ms: int
    rebalance_ms: int
    is_waiting: bool
    is_new: bool
    names: tuple[str, ...]


class Glance(NamedTuple):
    """A group between two steps."""

    state: GroupState
    generation: int
    members: dict[str, Seen]
    pending: frozenset[str]

    @property
    def patience_ms(self) -> int:
        return max((each.rebalance_ms for each in self.members.values()), default=0)


class Term(NamedTuple):
    """A generation while one coordinator has it."""

    life: int
    group_id: str
    burials: int
    generation: int


class Told:
    """What members heard of a generation."""

    def __init__(self, leader: str, protocol: str | None) -> None:
        self.leader = leader
        self.protocol = protocol
        self.joined: set[str] = set()
        self.members: set[str] | None = None


class MemberRules(Watcher):
    def __init__(self, log_rules: LogRules) -> None:
        self.stage: DrawnGroupStage
        self._log_rules = log_rules
        self._before: dict[str, Glance] = {}
        self._replies: dict[Asked, object] = {}
        self._were_refused: set[str] = set()
        """Groups of which a join was refused in this step."""
        self._places: dict[MemberKey, str] = {}
        self._terms: dict[Term, Told] = {}
        self.plans: dict[tuple[str, int, int], str] = {}
        """What members were given, by group, its last burial and generation."""
        self._burials: dict[str, int] = {}
        self._granted_ms: dict[MemberKey, int] = {}
        """When a member was given its whole session for certain."""
        self._heard_ms: dict[MemberKey, int] = {}
        """When it was last heard of, or told anything."""
        self._since: dict[str, tuple[int, int]] = {}
        """When a group came into its state, and how long its members had patience then."""
        self._began: dict[str, tuple[int, int]] = {}
        """The same of its generation."""
        self._stuck_ms: dict[str, int] = {}
        """Since when a group is in its state, or the process goes on in which it is."""
        self._synced: set[MemberKey] = set()
        """Those of this generation."""
        self._parked_ms: dict[str, int] = {}
        """Since when a client waits in a join phase."""
        self._pending_ms: dict[MemberKey, int] = {}

    def _now(self) -> dict[str, Glance]:
        return {group_id: glance_at(group) for group_id, group in classic_groups(self.stage.shard).items()}

    def appended(self, batch: Batch, cause: object) -> None:
        for change in batch.changes:
            if isinstance(change, RecordChange) and change.value is None:
                self._burials[change.group_id] = self._burials.get(change.group_id, 0) + 1

    def loaded(self) -> None:
        self._before = self._now()
        now_ms = self.stage.now_ms
        self._since = {group_id: (now_ms, each.patience_ms) for group_id, each in self._before.items()}
        self._began = {**self._since}
        self._stuck_ms = dict.fromkeys(self._before, now_ms)
        self._parked_ms, self._pending_ms = {}, {}
        members = [(group_id, each) for group_id, group in self._before.items() for each in group.members]
        self._synced = {*members}
        self._granted_ms = dict.fromkeys(members, now_ms)
        self._heard_ms = dict.fromkeys(members, now_ms)

    # What is told

    def replied(self, asked: Asked, response: object) -> None:
        if asked.replies > 1:
            raise Violation(f"{asked.event} is answered twice")
        self._replies[asked] = response
        match asked.event, response:
            case classic_events.Join(_, request), JoinGroupResponse(error_code=ErrorCode.NONE):
                self._learn_places(request.group_id)
                self._joined(asked.event, response)
            case classic_events.Sync(_, request), SyncGroupResponse(error_code=ErrorCode.NONE):
                self._learn_places(request.group_id)
                self._has_its_share(asked.event, bytes(response.assignment))
            case classic_events.Leave(_, request), LeaveGroupResponse(error_code=ErrorCode.NONE):
                group = classic_groups(self.stage.shard).get(request.group_id)
                for each in response.members:
                    is_gone = group is None or each.member_id not in group.members or not each.member_id
                    if each.error_code == ErrorCode.NONE and not is_gone:
                        raise Violation(f"{each.member_id} is said to be out of {request.group_id}, and is in it")

    def _learn_places(self, group_id: str) -> None:
        group = classic_groups(self.stage.shard).get(group_id)
        for each in group.members.values() if group is not None else ():
            self._places[group_id, each.member_id] = each.group_instance_id or each.member_id

    def _joined(self, event: classic_events.Join, response: JoinGroupResponse) -> None:
        request, member_id = event.request, response.member_id
        if request.member_id and member_id != request.member_id:
            raise Violation(f"{request.member_id} joins, and is called {member_id}")
        group = classic_groups(self.stage.shard)[request.group_id]
        if request.group_instance_id and group.static_members.get(request.group_instance_id) != member_id:
            raise Violation(f"{request.group_instance_id} is told to be {member_id}, and is another")
        if member_id not in group.members or response.generation_id != group.generation:
            raise Violation(f"{member_id} joins {response.generation_id}, where it is no member")
        if response.protocol_name not in [each.name for each in request.protocols]:
            raise Violation(f"{member_id} does not know protocol {response.protocol_name}")
        if group.state is STABLE and not request.member_id:
            record = self._log_rules.committed_log.groups.get(request.group_id)
            if record is None or member_id not in [each.member_id for each in record.members]:
                raise Violation(f"{member_id} is told its id, and it is not stored: {record}")
        leader = self._places.get((request.group_id, response.leader), response.leader)
        place = self._places[request.group_id, member_id]
        burials = self._burials.get(request.group_id, 0)
        term = Term(self.stage.epoch, request.group_id, burials, response.generation_id)
        told = self._terms.setdefault(term, Told(leader, response.protocol_name))
        if (told.leader, told.protocol) != (leader, response.protocol_name):
            raise Violation(f"{term} has leaders {told.leader} and {leader}, or two protocols")
        told.joined.add(place)
        dynamic = [each for each in told.joined if each not in group.static_members]  # the others keep their seats
        if len(dynamic) > self.stage.config.max_size:
            raise Violation(f"{term} has {len(told.joined)} members")
        if response.members:
            places = [each.group_instance_id or each.member_id for each in response.members]
            if place != leader or len(set(places)) != len(places):
                raise Violation(f"{place} of {term}, led by {leader}, is told of {places}")
            told.members = {*places}
        if told.members is not None and not told.joined <= told.members:
            raise Violation(f"{term} has {told.joined}, its leader knows {told.members}")

    def _has_its_share(self, event: classic_events.Sync, share: bytes) -> None:
        """A share is of the plan that the log keeps of this generation, which is one and for ever."""
        request = event.request
        stored = self._log_rules.committed_log.groups.get(request.group_id)
        if stored is None or stored.generation != request.generation_id:
            raise Violation(f"{request.member_id} has a share of {request.generation_id}; stored is {stored}")
        place = self._places.get((request.group_id, request.member_id), request.member_id)
        kept = [
            bytes(each.assignment) for each in stored.members if (each.group_instance_id or each.member_id) == place
        ]
        if kept != [share]:
            raise Violation(f"{place} has {share!r} of generation {request.generation_id}; stored is {kept}")
        if share:
            group_id, generation, plan, planned_place = share.decode().split("/")
            if (group_id, int(generation), planned_place) != (request.group_id, request.generation_id, place):
                raise Violation(f"{place} has {share!r} of generation {request.generation_id}")
            buried = self._log_rules.committed_log.buried.get(group_id, -1)
            if self.plans.setdefault((group_id, buried, int(generation)), plan) != plan:
                raise Violation(f"group {group_id} has two plans in generation {generation}")

    # What a step may do

    def settled(self, event: events.Event) -> None:
        before, after = self._before, self._now()
        self._before = after
        for group_id in after:
            self._learn_places(group_id)
        replies, self._replies = self._replies, {}
        self._were_refused = {
            asked.event.request.group_id
            for asked, response in replies.items()
            if isinstance(asked.event, classic_events.Join)
            and isinstance(response, JoinGroupResponse)
            and response.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
        }
        if isinstance(event, MEMBERS_REQUESTS):
            self._is_rightly_taken(event, before.get(event.request.group_id), replies)
        for asked in replies:
            self._hear(asked.event)
        for group_id, now in after.items():
            self._moved(event, group_id, before.get(group_id), now)
        for group_id in before.keys() - after.keys():
            if before[group_id].members:
                raise Violation(f"group {group_id} is gone with its members")

    def _is_rightly_taken(
        self,
        event: classic_events.Heartbeat
        | classic_events.Sync
        | events.CommitOffsets
        | events.CommitTransactionalOffsets,
        group: Glance | None,
        replies: dict[Asked, object],
    ) -> None:
        """Members of this generation are taken for members, and no other client is."""
        token, request = event.waiter.token, event.request
        assert isinstance(token, Asked)
        match replies.get(token):
            case HeartbeatResponse(error_code=code) | SyncGroupResponse(error_code=code):
                pass
            case OffsetCommitResponse(topics=[topic, *_]):
                code = topic.partitions[0].error_code
            case TxnOffsetCommitResponse(topics=[in_transaction, *_]):
                code = in_transaction.partitions[0].error_code
            case _:
                code = 0
        is_transactional = isinstance(event, events.CommitTransactionalOffsets)
        is_taken = code not in NOT_TAKEN
        if isinstance(event, events.CommitOffsets | events.CommitTransactionalOffsets):
            generation = event.request.generation_id_or_member_epoch
        else:
            generation = event.request.generation_id
        member = None if group is None else group.members.get(request.member_id)
        if generation < 0:
            is_nameless = not request.member_id and request.group_instance_id is None
            is_entitled = group is None or group.state is EMPTY or (is_transactional and is_nameless)
        else:
            is_entitled = member is not None and group is not None and group.generation == generation
            instance = request.group_instance_id
            is_entitled = is_entitled and (instance is None or (member is not None and member.instance == instance))
        here = group.members.items() if group is not None else ()
        owner = next(
            (each for each, seen in here if seen.instance and seen.instance == request.group_instance_id), None
        )
        if generation >= 0 and owner not in (None, request.member_id) and code != ErrorCode.FENCED_INSTANCE_ID:
            raise Violation(f"{request.member_id} hears {ErrorCode(code).name}, and {owner} has its place")
        if is_taken != is_entitled:
            name = ErrorCode(code).name
            raise Violation(f"{type(event).__name__} of {request.member_id} in {generation} hears {name}: {group}")
        if is_transactional:
            return  # it says nothing of a member's session
        is_made = group is not None and group.state is COMPLETING
        is_stored = isinstance(event, events.CommitOffsets) and is_taken and code != ErrorCode.REBALANCE_IN_PROGRESS
        if is_made and is_stored:
            raise Violation(f"{request.member_id} commits while generation {generation} is made")
        key = (request.group_id, request.member_id)
        if is_taken and isinstance(event, classic_events.Sync) and code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self._synced.add(key)
        if is_taken and generation >= 0:
            self._heard_ms[key] = self.stage.now_ms
            state = group.state if group is not None else EMPTY
            if isinstance(event, classic_events.Heartbeat) or state is STABLE or (state is PREPARING and code == 0):
                self._granted_ms[key] = self.stage.now_ms

    def _hear(self, event: events.Event | None) -> None:
        """A member that was answered has its whole session timeout again, and no more."""
        now_ms = self.stage.now_ms
        match event:
            case classic_events.Sync(_, request):
                self._heard_ms[request.group_id, request.member_id] = now_ms
            case classic_events.Join(_, request):
                group = classic_groups(self.stage.shard).get(request.group_id)
                owner = None if group is None else group.static_members.get(request.group_instance_id or "")
                self._heard_ms[request.group_id, owner or request.member_id] = now_ms

    def _moved(self, event: events.Event, group_id: str, before: Glance | None, after: Glance) -> None:
        now_ms = self.stage.now_ms
        former = before.members if before is not None else {}
        state = before.state if before is not None else EMPTY
        gone = {each: seen for each, seen in former.items() if each not in after.members}
        if gone:
            self._may_go(event, group_id, state, gone, after)
        for member_id in after.members.keys() - former.keys():
            self._heard_ms[group_id, member_id] = self._granted_ms[group_id, member_id] = now_ms
        instances = [each.instance for each in after.members.values() if each.instance is not None]
        known = classic_groups(self.stage.shard)[group_id].static_members
        if len(set(instances)) != len(instances) or {*known} != {*instances}:
            raise Violation(f"group {group_id} has the static members {instances}, and knows {known}")
        is_new_generation = before is not None and after.generation != before.generation
        if before is not None and after.generation not in (before.generation, before.generation + 1):
            raise Violation(f"group {group_id}: generation {after.generation} follows {before.generation}")
        if after.state is not state or is_new_generation:
            if isinstance(event, READS) or (isinstance(event, classic_events.Sync) and state is STABLE):
                raise Violation(f"{type(event).__name__} takes group {group_id} from {state} to {after.state}")
            self._since[group_id], self._stuck_ms[group_id] = (now_ms, after.patience_ms), now_ms
            self._parked_ms.pop(group_id, None)
        if state is PREPARING and after.state is not PREPARING and not is_new_generation:
            raise Violation(f"group {group_id} goes from {state} to {after.state} in one generation")
        leader_id = classic_groups(self.stage.shard)[group_id].leader_id or ""
        if after.state in (COMPLETING, STABLE) and leader_id not in after.members:
            raise Violation(f"group {group_id} is led by {leader_id}, which is no member")
        if is_new_generation:
            joiner = event.request.member_id if isinstance(event, classic_events.Join) else ""
            for member_id, seen in former.items():
                is_absent = not seen.is_waiting and member_id != joiner
                is_absent = is_absent and (seen.instance is None or member_id == leader_id)
                if is_absent and member_id in after.members:
                    raise Violation(f"{member_id} is in generation {after.generation} of {group_id}, and did not join")
            self._began[group_id] = self._since[group_id]
            self._synced = {key for key in self._synced if key[0] != group_id}
            for member_id in after.members:
                self._heard_ms[group_id, member_id] = self._granted_ms[group_id, member_id] = now_ms
        if after.state is PREPARING and any(each.is_waiting for each in after.members.values()):
            self._parked_ms.setdefault(group_id, now_ms)
        else:
            self._parked_ms.pop(group_id, None)
        for member_id in after.pending:
            self._pending_ms.setdefault((group_id, member_id), now_ms)
        if isinstance(event, classic_events.Join) and event.request.group_id == group_id and state is STABLE:
            self._returns_quietly(event, group_id, former, after)

    def _returns_quietly(
        self, event: classic_events.Join, group_id: str, former: dict[str, Seen], after: Glance
    ) -> None:
        """A static member that comes back with the same protocols starts no rebalance."""
        request = event.request
        if request.member_id or request.group_instance_id is None:
            return
        names = tuple(each.name for each in request.protocols)
        is_same = any(each.instance == request.group_instance_id and each.names == names for each in former.values())
        if is_same and after.state is not STABLE:
            raise Violation(f"{request.group_instance_id} comes back, and group {group_id} is {after.state}")

    def _may_go(
        self, event: events.Event, group_id: str, state: GroupState, gone: dict[str, Seen], after: Glance
    ) -> None:
        """Members are put out when their time is over, and otherwise go by themselves."""
        here = {each.instance for each in after.members.values() if each.instance is not None}
        for member_id, seen in gone.items():
            if seen.instance in here:
                continue  # under another id
            match event:
                case classic_events.Leave(_, request) if request.group_id == group_id:
                    named = [(each.member_id, each.group_instance_id) for each in request.members]
                    if (member_id, None) in named or ("", seen.instance) in named:
                        continue
                case classic_events.Join(_, request) if request.group_id == group_id and request.member_id == member_id:
                    if self.stage.config.max_size < 100:
                        continue
                case machine.Tick() if self._is_over(group_id, state, member_id, seen):
                    continue
            raise Violation(f"{member_id} is out of {group_id}, which was {state}, after {type(event).__name__}")

    def _is_over(self, group_id: str, state: GroupState, member_id: str, seen: Seen) -> bool:
        now_ms = self.stage.now_ms
        silent_ms = now_ms - self._granted_ms[group_id, member_id]
        if seen.is_waiting:  # only a member that has no id yet sends no heartbeats
            limit_ms = self.stage.config.new_member_join_timeout_ms if seen.instance is None else seen.session_ms
            return seen.is_new and (silent_ms >= limit_ms or group_id in self._were_refused)
        if silent_ms >= seen.session_ms or (seen.is_new and state is PREPARING):
            return True  # or the log refused the group that its join would have made
        since_ms, patience_ms = self._since[group_id] if state is PREPARING else self._began[group_id]
        is_awaited = state is PREPARING or (group_id, member_id) not in self._synced
        return is_awaited and now_ms - since_ms >= patience_ms

    # What time must bring

    def thawed(self) -> None:
        """What comes late is counted from now on."""
        self._stuck_ms = dict.fromkeys(self._stuck_ms, self.stage.now_ms)
        self._parked_ms = dict.fromkeys(self._parked_ms, self.stage.now_ms)

    def look(self) -> None:
        """All deadlines that came up were taken care of."""
        now_ms, config = self.stage.now_ms, self.stage.config
        for group_id, group in self._before.items():
            for member_id, member in group.members.items():
                silent_ms = now_ms - self._heard_ms[group_id, member_id]
                limit_ms = config.new_member_join_timeout_ms if member.is_new else member.session_ms
                if not member.is_waiting and silent_ms > limit_ms:
                    raise Violation(f"{member_id} was not heard of for {silent_ms} ms, and is in {group_id}")
            for member_id in group.pending:
                silent_ms = now_ms - self._pending_ms[group_id, member_id]
                if silent_ms > config.max_session_timeout_ms:
                    raise Violation(f"{member_id} was given its id {silent_ms} ms ago, and {group_id} waits for it")
            since_ms = self._stuck_ms.get(group_id, now_ms)
            patience_ms = max(self._since.get(group_id, (now_ms, 0))[1], group.patience_ms)
            if group.state is PREPARING:
                parked_ms = now_ms - self._parked_ms.get(group_id, now_ms)
                if (
                    parked_ms > 2 * patience_ms + config.initial_rebalance_delay_ms
                ):  # twice if no member was there first
                    raise Violation(f"members of {group_id} have waited {parked_ms} ms for others")
            if group.state is COMPLETING and now_ms - since_ms > patience_ms + config.offsets_commit_timeout_ms:
                raise Violation(f"generation {group.generation} of {group_id} is made for {now_ms - since_ms} ms")


def glance_at(group: ClassicGroup) -> Glance:
    members = {
        each.member_id: Seen(
            each.group_instance_id,
            each.session_timeout_ms,
            each.rebalance_timeout_ms,
            each.joining is not None or each.syncing is not None,
            each.is_new,
            tuple(protocol.name for protocol in each.protocols),
        )
        for each in group.members.values()
    }
    return Glance(group.state, group.generation, members, frozenset(group.pending_members))
