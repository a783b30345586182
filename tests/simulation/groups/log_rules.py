"""What a log of groups may hold, what of it may be read, and what the next coordinator must find in it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.classic.group import EMPTY, STABLE, ClassicGroup, subscription_topics
from moldau.coordinator.group import events
from moldau.coordinator.group.records import Change, CommittedOffset, OffsetChange, RecordChange, TransactionEnded
from moldau.coordinator.offsets.offset_fetch import AllOffsets, offsets_of
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import Effects
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_groups import DeleteGroupsResponse
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from moldau.protocol.messages.offset_delete import OffsetDeleteResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from moldau.protocol.record_batch import NO_PRODUCER_ID
from moldau.protocol.records.offsets import GroupMetadataValue
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.drawn_stage import Asked, Watcher
from tests.support.drawn_steps import Violation
from tests.support.group_stage import classic_groups
from tests.support.machine_stage import Batch

CONSUMER: Final = "consumer"
UNSTABLE: Final = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
"""What a reader that requires stable offsets is told of a partition with an offset in an open transaction."""
Place: TypeAlias = tuple[str, str, int]
"""Group, topic and partition."""
AskedTopic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
DoneTopic: TypeAlias = OffsetCommitResponseTopic | TxnOffsetCommitResponseTopic


class Pending(NamedTuple):
    """An offset, the end of its batch, and how many records the log has up to it."""

    value: CommittedOffset
    end_offset: int
    position: int


class Replayed:
    """What a log says up to somewhere, read by the book."""

    def __init__(self) -> None:
        self.offsets: dict[Place, tuple[CommittedOffset, int]] = {}
        """With the end of its batch."""
        self.pending: dict[int, dict[Place, Pending]] = {}
        """Of open transactions, by producer id."""
        self.ended: dict[tuple[int, bool], int] = {}
        """The end of the last marker, by producer id and what it says."""
        self._positions: dict[Place, int] = {}
        """The count of records up to the one that says an offset that counts."""
        self._records = 0
        self.groups: dict[str, GroupMetadataValue] = {}
        self.known: set[str] = set()
        self.buried: dict[str, int] = {}
        """The end of the batch with a group's last tombstone."""

    def take(self, change: Change, end_offset: int) -> None:
        self._records += 1
        match change:
            case OffsetChange(group_id, topic, partition, None):
                place = (group_id, topic, partition)
                self.offsets.pop(place, None)
                self._positions.pop(place, None)
                for offsets in self.pending.values():
                    offsets.pop(place, None)
            case OffsetChange(group_id, topic, partition, value, producer_id) if value is not None:
                place, placed = (group_id, topic, partition), Pending(value, end_offset, self._records)
                self.known.add(group_id)
                if producer_id == NO_PRODUCER_ID:
                    self._show(place, placed)
                else:
                    self.pending.setdefault(producer_id, {})[place] = placed
            case TransactionEnded(producer_id, is_commit):
                self.ended[producer_id, is_commit] = end_offset
                for place, placed in self.pending.pop(producer_id, {}).items():
                    if is_commit and placed.position > self._positions.get(place, 0):
                        self._show(place, placed)
            case RecordChange(group_id, _, None):
                self.groups.pop(group_id, None)
                self.known.discard(group_id)
                self.buried[group_id] = end_offset
            case RecordChange(group_id, _, GroupMetadataValue() as value):
                self.groups[group_id] = value
                self.known.add(group_id)

    def _show(self, place: Place, placed: Pending) -> None:
        self.offsets[place] = placed.value, placed.end_offset
        self._positions[place] = placed.position

    def pending_places(self) -> dict[Place, int]:
        """If an offset is pending in a transaction, with the end of the batch of the first."""
        found: dict[Place, int] = {}
        for offsets in self.pending.values():
            for place, placed in offsets.items():
                found[place] = min(placed.end_offset, found.get(place, placed.end_offset))
        return found


def all_of(answer: OffsetFetchResponseGroup | AllOffsets) -> OffsetFetchResponseGroup:
    """The response that the broker makes of an answer in pieces."""
    return answer.whole() if isinstance(answer, AllOffsets) else answer


class LogRules(Watcher):
    def __init__(self, group_ids: tuple[str, ...]) -> None:
        self.stage: DrawnGroupStage
        self.group_ids = group_ids
        self.latest = Replayed()
        self.committed_log = Replayed()
        self._ever: dict[int, set[tuple[Place, int, str]]] = {}
        """All that was ever committed, by its offset."""
        self._empty_since: dict[str, int | None] = {}
        """Wall clock; None if no record tells."""
        self._states: dict[str, object] = {}
        self._topics: dict[str, tuple[int, set[str]]] = {}
        """Generation of a group, and what its members subscribed to when it began."""
        self._appended_ms: dict[int, int] = {}
        self._event: events.Event = machine.Tick()
        self._looked_at = 0

    # The log

    def stepped(self, event: events.Event, effects: Effects) -> None:
        if not isinstance(event, (machine.Appended, machine.AppendRefused)):
            self._event = event

    def appended(self, batch: Batch, cause: object) -> None:
        self._appended_ms[batch.end_offset] = self.stage.now_ms
        for change in batch.changes:
            match change:
                case OffsetChange(value=None):
                    self._may_forget(change)
                case OffsetChange():
                    self._is_asked_for(change)
                case TransactionEnded():
                    self._is_ended(change)
                case RecordChange(group_id, _, None):
                    self._may_bury(group_id, batch.changes)
                case RecordChange(group_id, _, GroupMetadataValue() as value):
                    self._is_the_group(group_id, value)
        for change in batch.changes:
            self.latest.take(change, batch.end_offset)

    def committed(self, batch: Batch) -> None:
        for change in batch.changes:
            self.committed_log.take(change, batch.end_offset)
            if isinstance(change, OffsetChange) and change.value is not None:
                place, value = (change.group_id, change.topic, change.partition), change.value
                self._ever.setdefault(value.offset, set()).add((place, value.leader_epoch, value.metadata))

    def loaded(self) -> None:
        """A new coordinator knows what is in the log, and nothing else."""
        self.latest = Replayed()
        for batch in self.stage.log:
            for change in batch.changes:
                self.latest.take(change, batch.end_offset)
        groups = classic_groups(self.stage.shard)
        if set(groups) != self.latest.known:
            raise Violation(f"the log tells of groups {sorted(self.latest.known)}, loaded are {sorted(groups)}")
        for group_id, value in self.latest.groups.items():
            group = groups[group_id]
            ours = [
                (each.member_id, each.group_instance_id, each.session_timeout_ms, each.rebalance_timeout_ms)
                for each in group.members.values()
            ]
            stored_ones = [
                (each.member_id, each.group_instance_id, each.session_timeout, each.rebalance_timeout)
                for each in value.members
            ]
            shares = [bytes(each.assignment) for each in group.members.values()]
            loaded = (group.generation, group.leader_id, group.protocol_name, ours, shares)
            told = [bytes(each.assignment) for each in value.members]
            if loaded != (value.generation, value.leader, value.protocol, stored_ones, told):
                raise Violation(f"group {group_id}: the log says {value}, loaded is {loaded}")
        self._topics = {}
        for group_id, group in groups.items():
            self._learn_topics(group_id, group)
        self._states = {group_id: group.state for group_id, group in groups.items()}
        self._empty_since = {
            group_id: value.current_state_timestamp if value.current_state_timestamp != -1 else None
            for group_id, value in self.latest.groups.items()
        }

    # What may be written

    def _is_asked_for(self, change: OffsetChange) -> None:
        event, value = self._event, change.value
        assert value is not None
        match event:
            case events.CommitOffsets():
                producer_id = NO_PRODUCER_ID
            case events.CommitTransactionalOffsets():
                producer_id = event.request.producer_id
            case _:
                raise Violation(f"{change} is written after {type(event).__name__}")
        if event.request.group_id == change.group_id and producer_id == change.producer_id:
            for topic in event.request.topics:
                for asked in topic.partitions:
                    if (topic.name, asked.partition_index, asked.committed_offset, asked.committed_metadata) == (
                        change.topic,
                        change.partition,
                        value.offset,
                        value.metadata,
                    ):
                        return
        raise Violation(f"no request asked for {change}")

    def _is_ended(self, change: TransactionEnded) -> None:
        event = self._event
        if not isinstance(event, events.EndOffsetsTransaction) or change != (event.producer_id, event.end.is_commit):
            raise Violation(f"no transaction coordinator asked for {change}")

    def _may_forget(self, change: OffsetChange) -> None:
        match self._event:
            case events.DeleteOffsets(_, request):
                named = {(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions}
                is_allowed = request.group_id == change.group_id and (change.topic, change.partition) in named
                is_allowed = is_allowed and not self._is_used(change.group_id, change.topic)
            case events.DeleteGroups(_, request):
                is_allowed = change.group_id in request.groups_names
            case events.TopicsDeleted(topics):
                is_allowed = change.topic in topics
            case machine.Tick():
                is_allowed = self._is_expired(change)
            case _:
                is_allowed = False
        if not is_allowed:
            raise Violation(f"{change} is deleted after {type(self._event).__name__}, without a reason")

    def _is_used(self, group_id: str, topic: str) -> bool:
        """By a member of the generation there is."""
        group = classic_groups(self.stage.shard).get(group_id)
        if group is None or group.state is not STABLE:
            return False
        return topic in self._topics.get(group_id, (-1, set()))[1]

    def _is_expired(self, change: OffsetChange) -> bool:
        place = (change.group_id, change.topic, change.partition)
        if place in self.latest.pending_places():
            return False
        found = self.latest.offsets.get(place)
        group = classic_groups(self.stage.shard).get(change.group_id)
        if found is None or group is None:
            return False
        value, _ = found
        if group.protocol_type is None or (group.state is STABLE and not self._is_used(change.group_id, change.topic)):
            since_ms = value.commit_ms
        elif group.state is EMPTY:
            empty_ms = self._empty_since.get(change.group_id)
            since_ms = value.commit_ms if empty_ms is None else empty_ms
        else:
            return False
        end_ms = since_ms + self.stage.config.offsets_retention_ms if value.expire_ms is None else value.expire_ms
        return self.stage.wall_ms >= end_ms

    def _may_bury(self, group_id: str, changes: Sequence[Change]) -> None:
        group, event = classic_groups(self.stage.shard).get(group_id), self._event
        if group is None or group.members or group.state is not EMPTY:
            raise Violation(f"group {group_id} is forgotten, and is not empty")
        forgotten = {(each.group_id, each.topic, each.partition) for each in changes if isinstance(each, OffsetChange)}
        places = {*self.latest.offsets, *self.latest.pending_places()}
        kept = {place for place in places if place[0] == group_id} - forgotten
        if kept:
            raise Violation(f"group {group_id} is forgotten, and its offsets {kept} are not")
        if isinstance(event, events.DeleteGroups) and group_id in event.request.groups_names:
            return
        if not isinstance(event, machine.Tick):
            raise Violation(f"group {group_id} is forgotten after {type(event).__name__}")

    def _is_the_group(self, group_id: str, value: GroupMetadataValue) -> None:
        """A record tells the group as it stands, with what its leader planned or planned before."""
        if group_id not in self.latest.groups and not value.members and not value.generation:
            return  # it is there, and nothing more
        group = classic_groups(self.stage.shard)[group_id]
        said = (value.generation, value.leader, value.protocol, [each.member_id for each in value.members])
        if said != (group.generation, group.leader_id, group.protocol_name, [*group.members]):
            raise Violation(f"group {group_id}: {said} is written of it")
        former = self.latest.groups.get(group_id)
        event, plan = self._event, {}
        if isinstance(event, classic_events.Sync):
            plan = {each.member_id: bytes(each.assignment) for each in event.request.assignments}
            plan = {each.group_instance_id or each.member_id: plan.get(each.member_id, b"") for each in value.members}
        elif former is not None:
            plan = {each.group_instance_id or each.member_id: bytes(each.assignment) for each in former.members}
        for each in value.members:
            share = plan.get(each.group_instance_id or each.member_id)
            if share != bytes(each.assignment):
                raise Violation(f"group {group_id}: {each.member_id} is to have {each.assignment!r}, not {share!r}")

    # What is told

    def replied(self, asked: Asked, response: object) -> None:
        match asked.event, response:
            case events.CommitOffsets(_, request), OffsetCommitResponse():
                for topic, results in zip(request.topics, response.topics, strict=True):
                    self._is_stored(request.group_id, topic, results)
            case events.CommitTransactionalOffsets(_, asked_within), TxnOffsetCommitResponse():
                for within, done_within in zip(asked_within.topics, response.topics, strict=True):
                    self._is_stored(asked_within.group_id, within, done_within)
            case events.EndOffsetsTransaction(), ErrorCode.NONE:
                said = (asked.event.producer_id, asked.event.end.is_commit)
                if self.committed_log.ended.get(said, -1) <= asked.log_end_offset:
                    raise Violation(f"the marker {said} is said to be written, and is not")
            case events.DeleteGroups(), DeleteGroupsResponse():
                for done in response.results:
                    is_done = self.committed_log.buried.get(done.group_id, -1) > asked.log_end_offset
                    if done.error_code == ErrorCode.NONE and not is_done:
                        raise Violation(f"group {done.group_id} is said to be deleted, and is not")
            case events.DeleteOffsets(_, request), OffsetDeleteResponse(error_code=ErrorCode.NONE):
                pending = self.committed_log.pending_places()
                for left in response.topics:
                    for gone in left.partitions:
                        place = (request.group_id, left.name, gone.partition_index)
                        ends = [each[1] for each in [self.committed_log.offsets.get(place)] if each is not None]
                        ends += [pending[place]] if place in pending else []
                        is_there = bool(ends) and min(ends) <= asked.log_end_offset and not self._is_late()
                        if gone.error_code == ErrorCode.NONE and is_there:
                            raise Violation(f"{request.group_id} of {left.name} is said to be deleted, and is there")
            case events.FetchStableOffsets(), OffsetFetchResponseGroup(error_code=ErrorCode.NONE):
                self._is_committed(response, require_stable=True)
                self._is_decided(asked)

    def _is_stored(self, group_id: str, topic: AskedTopic, results: DoneTopic) -> None:
        """Offsets that are acknowledged are committed in the log, which may say that they are pending."""
        errors = {done.partition_index: done.error_code for done in results.partitions}
        for each in topic.partitions:
            stored = (
                (group_id, topic.name, each.partition_index),
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            is_refused = errors[each.partition_index] != ErrorCode.NONE
            if not is_refused and stored not in self._ever.get(each.committed_offset, ()):
                raise Violation(f"{stored} is acknowledged at {each.committed_offset}, and not committed")

    def _is_late(self) -> bool:
        """Something waits for its commit for longer than anybody waits for that: the next is told without it."""
        old_ms = self.stage.now_ms - self.stage.config.offsets_commit_timeout_ms
        is_open = [each for each in self.stage.log if each.end_offset > self.stage.committed_end_offset]
        return any(self._appended_ms[each.end_offset] <= old_ms for each in is_open)

    def _is_decided(self, asked: Asked) -> None:
        young_ms = self.stage.now_ms - self.stage.config.offsets_commit_timeout_ms
        for batch in self.stage.log:
            is_open = self.stage.committed_end_offset < batch.end_offset <= asked.log_end_offset
            if is_open and self._appended_ms[batch.end_offset] > young_ms:
                raise Violation(f"a stable read is answered, and what ends at {batch.end_offset} is not decided")

    def settled(self, event: events.Event) -> None:
        for group_id, group in classic_groups(self.stage.shard).items():
            self._learn_topics(group_id, group)
            if self._states.get(group_id) is not group.state:
                self._states[group_id] = group.state
                if group.state is EMPTY:
                    self._empty_since[group_id] = self.stage.wall_ms
        if isinstance(event, events.TopicsDeleted) and not self.stage.manners.refuses:
            places = {*self.latest.offsets, *self.latest.pending_places()}
            left = [place for place in places if place[1] in event.topics]
            if left:
                raise Violation(f"the topic is no more, and {left} are there")
        if isinstance(event, machine.Loaded):
            return  # what of it is committed comes next
        self._looked_at += 1
        self.look(self.group_ids[self._looked_at % len(self.group_ids)])

    def _learn_topics(self, group_id: str, group: ClassicGroup) -> None:
        """As a generation begins: a static member that comes back with others changes nothing, as in Apache Kafka."""
        generation, _ = self._topics.get(group_id, (-1, None))
        if generation != group.generation:
            said = [
                subscription_topics(each.metadata_of(group.protocol_name))
                for each in group.members.values()
                if group.protocol_name
            ]
            self._topics[group_id] = group.generation, {topic for topics in said for topic in topics}

    def look(self, group_id: str) -> None:
        """What readers of a group see now."""
        shard = self.stage.shard
        request = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        self._is_committed(all_of(shard.offsets(request)))
        stable = offsets_of(shard._offsets.committed_offsets(group_id), request, require_stable=True)
        self._is_committed(all_of(stable), require_stable=True)
        is_shown = shard.group(group_id) is not None
        if is_shown and group_id not in self.committed_log.known:
            raise Violation(f"group {group_id} is shown, and nothing of it is committed")

    def _is_committed(self, response: OffsetFetchResponseGroup, *, require_stable: bool = False) -> None:
        told = {
            (response.group_id, topic.name, each.partition_index): (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
                each.error_code,
            )
            for topic in response.topics
            for each in topic.partitions
        }
        pending = self.committed_log.pending_places() if require_stable else {}
        stored = {
            place: UNSTABLE if place in pending else (value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE)
            for place, (value, _) in self.committed_log.offsets.items()
            if place[0] == response.group_id
        }
        if told != stored:
            raise Violation(f"group {response.group_id} reads {told}, committed is {stored}")
