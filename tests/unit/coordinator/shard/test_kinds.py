"""The table of kinds of groups, and the shard over groups of several kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.classic.kind import CLASSIC
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.consumer.kind import CONSUMER
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import CommitOffsets, CommitTransactionalOffsets
from moldau.coordinator.group.group import Group, GroupKind, GroupStep, RequestOfGroup, TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.records import Change, CommittedOffset, OffsetChange, RecordChange
from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.runtime.machine import Loaded, Waiter
from moldau.coordinator.shard import kinds, shard
from moldau.coordinator.shard.kinds import KINDS, change_of
from moldau.coordinator.shard.record_reading import GroupRecordReader
from moldau.coordinator.shard.shard import GroupShard, ShardTimer
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.kind import SHARE
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.kind import STREAMS
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.offsets import GroupMetadataKey, GroupMetadataValue
from moldau.protocol.records.record_frames import type_prefix

FIRST_FREE_TYPE = 1_000


class MeetingKey(NamedTuple):
    group_id: str


class MeetingValue(NamedTuple):
    place: str


@dataclass
class Meeting:
    """A kind of group that exists only here: a group has a place at which it meets."""

    group_id: str
    place: str = ""
    visible_from: int | None = None
    type_name: str = "meeting"
    state_name: str = "Meeting"
    protocol_type: str | None = "meeting"
    members_count: int = 0
    timers: list[TimerKey] = field(default_factory=list)
    is_simple: bool = False
    is_empty: bool = True

    def deletion_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def offset_deletion_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    def tombstones(self) -> list[Change]:
        return [RecordChange(self.group_id, MeetingKey(self.group_id), None)]


class MeetingKind(GroupKind[Meeting, RequestOfGroup]):
    group_class = Meeting
    first_requests = ()
    records = ()
    session_timer = ShardTimer.EXPIRY

    def session_timeouts_ms(
        self, config: GroupConfig, image: CoordinatorImage, group: Meeting
    ) -> Iterator[tuple[str, int]]:
        return iter(())

    def decide(self, step: GroupStep, group: Meeting, event: RequestOfGroup) -> bool:
        return False

    def decide_first(self, step: GroupStep, group: Group | None, event: RequestOfGroup) -> None:
        raise AssertionError("the kind has no requests")

    def replay(self, group: Meeting | None, change: RecordChange, is_loaded: bool) -> Meeting | None:
        if change.value is None:
            return None
        assert isinstance(change.value, MeetingValue)
        meeting = Meeting(change.group_id) if group is None else group
        meeting.place = change.value.place
        return meeting

    def on_timer(self, step: GroupStep, group: Meeting, key: TimerKey) -> None: ...

    def on_loaded(self, step: GroupStep, group: Meeting) -> None: ...


MEETING = MeetingKind()


@pytest.fixture(autouse=True)
def two_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "KIND_OF_GROUP", {**kinds.KIND_OF_GROUP, Meeting: MEETING})
    monkeypatch.setattr(shard, "KIND_OF_KEY", {**kinds.KIND_OF_KEY, MeetingKey: MEETING})


def loaded(*changes: Change) -> GroupShard:
    loading = GroupShard(GroupConfig(), 100)
    for offset, change in enumerate(changes):
        loading.replay(change, offset + 1)
    return loading


def meeting(place: str | None) -> RecordChange:
    return RecordChange("g", MeetingKey("g"), None if place is None else MeetingValue(place))


def generation(protocol_type: str | None) -> RecordChange:
    value = GroupMetadataValue(
        protocol_type=protocol_type or "", generation=1, protocol=None, leader=None, current_state_timestamp=1
    )
    return RecordChange("g", GroupMetadataKey(group="g"), None if protocol_type is None else value)


OFFSET = OffsetChange("g", "t", 0, CommittedOffset(5))


def test_each_request_and_each_record_belongs_to_one_kind() -> None:
    requests = Counter(request for kind in KINDS for request in kind.first_requests)
    numbers = Counter(record.number for kind in KINDS for record in kind.records)
    assert set(requests.values()) == set(numbers.values()) == {1}


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        (CLASSIC, ClassicGroup("g", None)),
        (CONSUMER, ConsumerGroup("g")),
        (SHARE, ShareGroup("g")),
        (STREAMS, StreamsGroup("g")),
    ],
    ids=lambda each: getattr(each, "type_name", ""),
)
def test_each_kind_decides_who_may_commit(kind: GroupKind[Any, Any], group: Group) -> None:
    assert isinstance(group, kind.group_class) and kind in KINDS
    step = GroupShard(GroupConfig()).begin(0, 0)
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=5, member_id="m", topics=[])
    transactional = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id_or_member_epoch=5,
        member_id="m",
        topics=[],
    )
    assert kind.decide(step, group, CommitOffsets(Waiter("one", 9), request))
    assert kind.decide(step, group, CommitTransactionalOffsets(Waiter("two", 5), transactional, None))
    assert [reply.token for reply in step.replies] == ["one", "two"], "no member of this id may commit"
    assert not step.changes


def test_a_group_that_only_keeps_offsets_gives_its_place_to_any_kind() -> None:
    found = loaded(OFFSET, meeting("pub"))
    group = found.group("g")
    assert isinstance(group, Meeting) and group.place == "pub"
    assert group.visible_from == 1, "readers know the group by its first offset"
    assert found.group_counts().offsets == 1


def test_offsets_do_not_change_the_kind_of_a_group() -> None:
    assert isinstance(loaded(meeting("pub"), OFFSET).group("g"), Meeting)


def test_a_group_turns_into_another_kind_by_a_tombstone_and_a_record() -> None:
    assert isinstance(loaded(generation("consumer"), generation(None), meeting("pub")).group("g"), Meeting)
    assert isinstance(loaded(meeting("pub"), meeting(None), generation("consumer")).group("g"), ClassicGroup)


def test_the_tombstone_of_another_kind_has_no_effect() -> None:
    """Compaction may keep the tombstone of a group that was made again as another kind."""
    assert isinstance(loaded(generation("consumer"), meeting(None)).group("g"), ClassicGroup)
    assert loaded(meeting(None)).group("g") is None


def test_a_log_that_is_being_compacted_may_lack_the_tombstone_between_two_kinds() -> None:
    """The tombstone is superseded if the group later turns back: the last records decide."""
    found = loaded(generation("consumer"), meeting("pub"))
    assert isinstance(found.group("g"), Meeting)
    assert isinstance(loaded(generation("consumer"), meeting("pub"), generation("consumer")).group("g"), ClassicGroup)
    found.step(Loaded(), 0, 0)
    with pytest.raises(AssertionError, match="tombstones come first"):
        found.replay(generation("consumer"), 9)


def test_records_of_no_kind_are_counted() -> None:
    unknown = Record(type_prefix(FIRST_FREE_TYPE) + b"of a later release", b"", 7)
    assert change_of(unknown) is None
    reader = LogReader(0, GroupRecordReader())
    assert reader.read(build_batch([unknown, unknown])) == []
    assert reader.ignored == 2


def test_the_kind_of_classic_groups_has_their_record() -> None:
    assert [record.number for record in CLASSIC.records] == [2]
