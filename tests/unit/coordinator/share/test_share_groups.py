"""A share group: members join, stay and leave; share partitions are initialized before they are assigned."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.group.events import ShardRequest, TopicsDeleted
from moldau.coordinator.group.history import Cause, GroupEvent
from moldau.coordinator.group.kind_settings import ShareGroupSettings
from moldau.coordinator.runtime.machine import Appended, Committed, Waiter
from moldau.coordinator.share import heartbeat
from moldau.coordinator.share.events import (
    DeleteOffsets,
    DeleteStates,
    InitializeStates,
    ShareHeartbeat,
    StatesInitialized,
    StatesToDelete,
)
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import StateTopics, TopicState
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.share_group_stage import GROUP, ShareGroupStage
from tests.support.topics_image import TestImage, TestTopic, topic_id_of

T, U = topic_id_of("t"), topic_id_of("u")


def partitions(response: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    assert response.error_code == ErrorCode.NONE, response.error_message
    assert response.assignment is not None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}


def test_the_first_member_gets_partitions_once_their_state_is_initialized() -> None:
    stage = ShareGroupStage({"t": 2})
    joined = stage.beat("a", 0, "t")
    assert (joined.member_epoch, joined.heartbeat_interval_ms, partitions(joined)) == (2, 500, {})
    (command,) = stage.commands
    assert (command.state_epoch, [each.start_offset for each in command.offsets]) == (2, [-1, -1])
    assert stage.share_group.state_topics.initialized[T].partitions == {0, 1}
    stayed = stage.beat("a", 2)
    assert (stayed.member_epoch, stayed.heartbeat_interval_ms, partitions(stayed)) == (3, 5_000, {T: [0, 1]})
    assert stage.beat("a", 3).assignment is None, "nothing has changed"
    described = stage.described()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
    (member,) = described.members
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("cli", "/127.0.0.1", ["t"])
    assert member.assignment.topic_partitions[0].topic_name == "t"


def test_an_initialization_without_an_outcome_is_repeated() -> None:
    stage = ShareGroupStage({"t": 1}, ShareGroupSettings(initialize_retry_interval_ms=10_000, assignment_interval_ms=0))
    stage.stores = False
    stage.beat("a", 0, "t")
    stage.wait(9_999)
    assert stage.beat("a", 2).heartbeat_interval_ms == 500
    assert len(stage.commands) == 1
    stage.wait(1)
    stage.stores = True
    stage.beat("a", 2)
    assert len(stage.commands) == 2
    assert T in stage.share_group.state_topics.initialized and not stage.share_group.state_topics.initializing


def test_an_initialization_that_failed_begins_anew_with_the_next_heartbeat() -> None:
    stage = ShareGroupStage({"t": 2}, ShareGroupSettings(initialize_retry_interval_ms=10_000, assignment_interval_ms=0))
    stage.stores = False
    stage.beat("a", 0, "t")
    first, second = ((T, index) for index in (0, 1))
    stage.step(StatesInitialized(GROUP, frozenset({first}), frozenset({second})))
    assert stage.share_group.state_topics == StateTopics(initialized={T: TopicState("t", frozenset({0}))})
    stage.beat("a", 2)
    assert [(each.topic_id, each.partition) for each in stage.commands[-1].offsets] == [second]


def test_a_new_coordinator_goes_on_where_the_records_end() -> None:
    stage = ShareGroupStage({"t": 3})
    for member_id in "ab":
        stage.beat(member_id, 0, "t")
    stage.settle("a", "b")
    before = vars(stage.share_group)
    stage.take_over()
    after = vars(stage.share_group)
    for name in ("epoch", "metadata_hash", "assignment_epoch", "targets", "members", "state_topics"):
        assert after[name] == before[name], name
    assert stage.beat("a", stage.share_group.members["a"].epoch).error_code == ErrorCode.NONE


def test_more_members_share_partitions_and_a_member_that_leaves_gives_its_own_back() -> None:
    stage = ShareGroupStage({"t": 2})
    for member_id in "abc":
        stage.beat(member_id, 0, "t")
    stage.settle("a", "b", "c")
    held = [member.assigned for member in stage.share_group.members.values()]
    assert sorted(map(len, held)) == [1, 1, 2] or sorted(map(len, held)) == [1, 1, 1]
    left = stage.beat("a", -1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    stage.settle("b", "c")
    assert {index for member in stage.share_group.members.values() for _, index in member.assigned} == {0, 1}
    assert stage.beat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for member_id in "bc":
        stage.beat(member_id, -1)
    assert (stage.share_group.state_name, stage.share_group.targets) == ("Empty", {})


def test_a_member_without_heartbeats_is_removed() -> None:
    stage = ShareGroupStage({"t": 2})
    stage.beat("a", 0, "t")
    stage.wait(44_999)
    assert list(stage.share_group.members) == ["a"]
    stage.beat("a", 2)
    stage.wait(45_000)
    assert not stage.share_group.members and stage.share_group.epoch > 1
    stage.take_over()
    assert isinstance(stage.shard.group(GROUP), ShareGroup), "an empty share group does not expire"


def test_new_partitions_and_topics_are_initialized_and_assigned() -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t", "u")
    stage.settle("a")
    stage.set_topics({"t": 2, "u": 1})
    stage.settle("a")
    assert stage.share_group.members["a"].assigned == {
        (T, 0),
        (T, 1),
        (U, 0),
    }


def test_a_heartbeat_looks_at_the_group_again_only_where_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    epoch = stage.settle("a")["a"]
    looks: list[None] = []
    monkeypatch.setattr(heartbeat, "initialize_new", lambda *_: looks.append(None))
    stage.beat("a", epoch)
    assert looks == []
    stage.set_topics({"t": 1})
    stage.beat("a", epoch)
    stage.beat("a", epoch)
    assert len(looks) == 1
    stage.beat("a", epoch, "t", "u")
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("news", "settled"),
    [
        ({}, True),
        ({"rack_id": "r"}, False),
        ({"subscribed_topic_names": ["t"]}, False),
        ({"member_epoch": 2}, False),
        ({"member_epoch": 0}, False),
        ({"member_epoch": -1}, False),
        ({"member_id": "b"}, False),
    ],
)
def test_a_heartbeat_that_only_prolongs_the_session_is_found(news: dict[str, Any], settled: bool) -> None:
    """The stage compares each that repeats the one before it with a step."""
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    assert stage.settle("a") == {"a": 3}

    def is_settled(client_id: str = "cli", host: str = "/127.0.0.1") -> bool:
        fields = {"group_id": GROUP, "member_id": "a", "member_epoch": 3, **news}
        event = ShareHeartbeat(stage.waiter(1), ShareGroupHeartbeatRequest(**fields), client_id, host)
        return stage.shard.settled_heartbeat(event) is not None

    assert is_settled() is settled
    assert not is_settled(client_id="other") and not is_settled(host="/other")
    stage.set_topics({"t": 1, "u": 1})
    assert not is_settled(), "the metadata has changed"
    stage.beat("a", 3)
    assert is_settled() is settled
    stage.beat("b", 0, "t")
    assert not is_settled(), "the group has another epoch"


def test_a_heartbeat_without_a_step_prolongs_the_session() -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    stage.settle("a")
    before = stage.repeated_count
    for _ in range(3):
        stage.wait(30_000)
        assert stage.beat("a", 3).error_code == ErrorCode.NONE
    assert stage.repeated_count == before + 3
    stage.wait(45_000)
    assert stage.share_group.members == {}


def test_a_changed_subscription_takes_effect_at_once() -> None:
    stage = ShareGroupStage({"t": 1, "u": 1})
    stage.beat("a", 0, "t", "u")
    epoch = stage.settle("a")["a"]
    changed = stage.beat("a", epoch, "u")
    assert partitions(changed) == {U: [0]} and changed.member_epoch == epoch + 1


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (7, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (-2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_epochs(epoch: int, error: ErrorCode) -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    assert stage.settle("a") == {"a": 3}
    assert stage.beat("a", epoch, "t").error_code == error


def test_an_epoch_before_the_previous_one_is_fenced() -> None:
    stage = ShareGroupStage({"t": 1, "u": 1})
    stage.beat("a", 0, "t")
    stage.settle("a")
    stage.beat("a", 3, "u")
    stage.settle("a")
    assert stage.share_group.members["a"].epoch > 3
    assert stage.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_requests_that_make_no_sense() -> None:
    stage = ShareGroupStage({"t": 1})
    assert stage.beat("a", 0).error_message == "SubscribedTopicNames must be set in first request."
    for blanks in (" ", "\x1f\0"):
        assert stage.beat(blanks, 0, "t").error_message == "MemberId can't be empty."
    assert stage.beat("", 0, "t").error_code == ErrorCode.INVALID_REQUEST
    assert stage.beat("m" * 37, 0, "t").error_code == ErrorCode.INVALID_REQUEST
    assert stage.beat("m" * 36, -2, "t").error_message == "MemberEpoch is invalid."
    assert stage.beat("a", 0, "t", rack_id="").error_message == "RackId can't be empty."
    assert stage.beat("a", 4).error_message == f"Share group {GROUP} not found."
    assert stage.beat("a", -1).error_message == f"Group {GROUP} not found."
    assert stage.described("other").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.records == []


def test_a_full_group_takes_no_further_member() -> None:
    stage = ShareGroupStage({"t": 1}, ShareGroupSettings(max_size=1, assignment_interval_ms=0))
    stage.beat("a", 0, "t")
    refused = stage.beat("b", 0, "t")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The share group has reached its maximum capacity of 1 members."
    assert stage.beat("a", 0, "t").error_code == ErrorCode.NONE


def test_targets_are_computed_at_intervals() -> None:
    stage = ShareGroupStage({"t": 1, "u": 1}, ShareGroupSettings(assignment_interval_ms=1_000))
    stage.beat("a", 0, "t")
    stage.beat("a", 2)
    assert stage.share_group.assignment_epoch == 2 and stage.share_group.epoch == 3
    stage.wait(1_000)
    assert stage.beat("a", 2).member_epoch == 3


def test_a_refused_write_changes_nothing() -> None:
    stage = ShareGroupStage({"t": 1})
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.beat("a", 0, "t").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.shard.group(GROUP) is None and stage.commands == []


def test_an_outcome_for_what_is_not_being_initialized_has_no_effect() -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    records = len(stage.records)
    stage.step(StatesInitialized(GROUP, frozenset({(b"?" * 16, 0)})))
    stage.step(StatesInitialized("other", frozenset({(b"?" * 16, 0)})))
    assert len(stage.records) == records


def test_partitions_that_become_ready_begin_no_rebalance_that_is_told() -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    stage.settle("a")
    stage.set_topics({"t": 2})
    stage.settle("a")
    begun = [each.detail for each in stage.shard.history.events_of(GROUP) if each.cause is Cause.REBALANCE_BEGAN]
    assert begun == ["joined", "topics-changed"]


def test_a_deleted_topic_leaves_the_record_of_the_group() -> None:
    stage = ShareGroupStage({"t": 1, "u": 1})
    stage.beat("a", 0, "t", "u")
    stage.settle("a")
    stage.set_topics({"u": 1})
    stage.step(TopicsDeleted(frozenset({"t"}), frozenset({T})))
    assert stage.share_group.state_topics.initialized == {U: TopicState("u", frozenset({0}))}
    assert stage.shard.history.events_of(GROUP)[-1][:6] == GroupEvent(Cause.TOPIC_DELETED, number=1, detail="t")[:6]
    stage.settle("a")
    assert stage.share_group.members["a"].assigned == {(U, 0)}
    records = len(stage.records)
    stage.step(TopicsDeleted(frozenset({"t"}), frozenset({T})))
    assert len(stage.records) == records, "the group knows nothing of it any more"


def test_a_deleted_topic_is_not_initialized_or_deleted_any_more() -> None:
    stage = ShareGroupStage({"t": 1, "u": 1})
    stage.stores = False
    stage.beat("a", 0, "t")
    assert T in stage.share_group.state_topics.initializing
    stage.step(TopicsDeleted(frozenset({"t"}), frozenset({T})))
    assert stage.share_group.state_topics == StateTopics()
    stage.stores = True
    stage.beat("a", 2, "u")
    stage.beat("a", -1)
    stage.ask(DeleteOffsets(stage.waiter(1), GROUP, ("u",)))
    assert stage.share_group.state_topics == StateTopics(deleting={U: "u"})
    stage.step(TopicsDeleted(frozenset({"u"}), frozenset({U})))
    assert stage.share_group.state_topics == StateTopics()


def test_a_topic_that_was_deleted_unseen_and_made_anew_raises_the_epoch_once() -> None:
    stage = ShareGroupStage({"t": 1})
    stage.beat("a", 0, "t")
    stage.settle("a")
    anew = TestTopic("t", b"new" * 5 + b"!", 1)
    stage.image = TestImage((anew,), stage.image.version + 1)
    stage.take_over()
    epoch = stage.settle("a")["a"]
    assert stage.share_group.members["a"].assigned == {(anew.id, 0)}
    assert stage.settle("a")["a"] == epoch


def beat_of(member_id: str, epoch: int, *topics: str) -> ShareHeartbeat:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )
    return ShareHeartbeat(Waiter("client", 1), request, "cli", "/127.0.0.1")


def commands_of(stage: ShareGroupStage, *events: ShardRequest, committed: int = 0) -> tuple[int, list[object]]:
    """The end of the log after these steps, and the commands of all of them; committed is what is said."""
    commands: list[object] = []
    end_offset = committed
    for event in events:
        effects = stage.shard.step(event, stage.now_ms, stage.wall_ms)
        commands += effects.commands
        if effects.has_batch:
            end_offset += len(effects.records)
            commands += stage.shard.step(Appended(end_offset), stage.now_ms, stage.wall_ms).commands
    return end_offset, commands


def test_two_members_that_join_before_the_first_commit_cause_one_initialization() -> None:
    stage = ShareGroupStage({"t": 2})
    end_offset, commands = commands_of(stage, beat_of("a", 0, "t"), beat_of("b", 0, "t"))
    commands += stage.shard.step(Committed(end_offset), stage.now_ms, stage.wall_ms).commands
    (command,) = commands
    assert isinstance(command, InitializeStates) and len(command.offsets) == 2


def test_what_is_initialized_meanwhile_does_not_begin_anew() -> None:
    """A repetition that waits for its commit while the outcome of the first attempt comes."""
    stage = ShareGroupStage({"t": 1}, ShareGroupSettings(initialize_retry_interval_ms=10_000, assignment_interval_ms=0))
    stage.stores = False
    stage.beat("a", 0, "t")
    stage.wait(10_000)
    done = StatesInitialized(GROUP, frozenset({(T, 0)}))
    begin = len(stage.records)
    end_offset, commands = commands_of(stage, beat_of("a", 1), done, committed=begin)
    commands += stage.shard.step(Committed(end_offset), stage.now_ms, stage.wall_ms).commands
    assert commands == [] and stage.share_group.state_topics.initialized


def test_a_repetition_that_the_log_refused_is_tried_again_at_once() -> None:
    stage = ShareGroupStage({"t": 1}, ShareGroupSettings(initialize_retry_interval_ms=10_000, assignment_interval_ms=0))
    stage.stores = False
    stage.beat("a", 0, "t")
    stage.wait(10_000)
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    stage.beat("a", 2)
    assert len(stage.commands) == 1
    stage.refusal = ErrorCode.NONE
    stage.beat("a", 2)
    assert len(stage.commands) == 2


def test_a_group_whose_deletion_began_initializes_its_state_anew() -> None:
    stage = ShareGroupStage({"t": 2, "u": 1, "v": 1})
    stage.beat("a", 0, "t", "u")
    assert stage.ask(DeleteStates(stage.waiter(1), GROUP)) == StatesToDelete({}), "it has a member"
    stage.beat("a", -1)
    stage.ask(DeleteOffsets(stage.waiter(1), GROUP, ("u",)))
    answer = stage.ask(DeleteStates(stage.waiter(1), GROUP))
    assert answer == StatesToDelete({T: frozenset({0, 1}), U: frozenset({0})})
    both = {topic_id_of(name): name for name in "tu"}
    assert stage.share_group.state_topics == StateTopics(deleting=both)
    records = len(stage.records)
    assert stage.ask(DeleteStates(stage.waiter(1), GROUP)) == answer, "it can be repeated"
    assert len(stage.records) == records
    stage.beat("b", 0, "t")
    assert [*stage.share_group.state_topics.initialized] == [T]
    assert stage.ask(DeleteStates(stage.waiter(1), "other")) == StatesToDelete({})
