"""Stories of members of consumer groups: they join, share partitions, leave, and are fenced."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.consumer.events import ConsumerHeartbeat
from moldau.coordinator.consumer.heartbeat import is_settled, join_or_stay
from moldau.coordinator.consumer.member import MemberState
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings
from moldau.coordinator.runtime.machine import Appended, Committed
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.support.consumer_stage import ConsumerStage, assigned, id_of

NONE = ErrorCode.NONE


def state_of(stage: ConsumerStage, member_id: str) -> MemberState:
    return stage.group.members[member_id].state


def test_the_first_member_gets_all_partitions_at_once() -> None:
    stage = ConsumerStage()
    answer = stage.join("m1")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "m1", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert assigned(answer) == {"a": [0, 1, 2, 3]}
    assert stage.written == [
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]
    assert stage.group.state.value == "Stable"


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    answer = stage.stay("m1")
    assert (answer.member_epoch, answer.assignment, stage.written) == (2, None, [])


@pytest.mark.parametrize(
    ("news", "settled"),
    [
        ({}, True),
        ({"instance_id": "i1"}, True),
        ({"instance_id": "i2"}, False),
        ({"rack_id": "r"}, False),
        ({"rebalance_timeout_ms": 30_000}, False),
        ({"server_assignor": "range"}, False),
        ({"subscribed_topic_names": ["a"]}, False),
        ({"subscribed_topic_regex": "a.*"}, False),
        ({"topic_partitions": []}, False),
        ({"member_epoch": 1}, False),
        ({"member_epoch": 0}, False),
        ({"member_id": "m2"}, False),
    ],
)
def test_a_heartbeat_that_only_prolongs_the_session_is_answered_as_any_other(
    news: dict[str, Any], settled: bool
) -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    stage.stay("m1")  # the group has looked at its topics
    fields = {"group_id": "g", "member_id": "m1", "member_epoch": 2, **news}
    request = ConsumerGroupHeartbeatRequest(**fields)
    event = ConsumerHeartbeat(stage.waiter(1), request, "client", "/host", "", None)
    step = stage.shard.begin(stage.now_ms, stage.now_ms)
    assert is_settled(step, stage.group, event) is settled
    at_once = stage.shard.reply_at_once(event, stage.now_ms, stage.now_ms)
    assert (at_once is not None) is settled
    if at_once is not None:
        by_the_long_way = join_or_stay(step, stage.group, event, stage.config.consumer)
        assert (at_once.response, step.changes) == (by_the_long_way, [])
        (in_a_step,) = stage.shard.step(event, stage.now_ms, stage.now_ms).replies
        assert in_a_step == at_once


def test_a_heartbeat_takes_the_long_way_where_the_client_or_the_cluster_is_another() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.stay("m1")
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=2)

    def is_short(client_id: str, host: str) -> bool:
        event = ConsumerHeartbeat(stage.waiter(1), request, client_id, host, "", None)
        return is_settled(stage.shard.begin(stage.now_ms, stage.now_ms), stage.group, event)

    assert is_short("client", "/host")
    assert not is_short("other", "/host")
    assert not is_short("client", "/other")
    stage.topics(a=5)
    assert not is_short("client", "/host")


def test_no_heartbeat_is_answered_ahead_of_an_uncommitted_write() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.stay("m1")
    end_offset = stage.end_offset
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=2)
    event = ConsumerHeartbeat(stage.waiter(1), request, "client", "/host", "", None)
    committing = stage.commit_event("m1", 2, "a", 0)
    assert stage.shard.step(committing, stage.now_ms, stage.now_ms).records
    stage.shard.step(Appended(end_offset + 1, end_offset), stage.now_ms, stage.now_ms)
    assert stage.shard.reply_at_once(event, stage.now_ms, stage.now_ms) is None
    assert stage.shard.step(event, stage.now_ms, stage.now_ms).replies == []
    replies = stage.shard.step(Committed(end_offset + 1), stage.now_ms, stage.now_ms).replies
    assert [reply.token for reply in replies] == [committing.waiter.token, event.waiter.token]
    assert stage.shard.reply_at_once(event, stage.now_ms, stage.now_ms) is not None


def test_a_short_heartbeat_prolongs_the_session() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.wait(30_000)
    assert stage.stay("m1").error_code == NONE
    stage.wait(44_999)
    assert list(stage.group.members) == ["m1"]
    stage.wait(1)
    assert stage.group.members == {}


def test_a_second_member_waits_until_the_first_has_revoked() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 1_000
    second = stage.join("m2")
    assert (second.member_epoch, assigned(second)) == (3, {})
    assert stage.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    told = stage.stay("m1")
    assert (told.member_epoch, assigned(told)) == (2, {"a": [0, 1]})
    assert assigned(stage.stay("m2")) is None
    revoked = stage.stay("m1", owned={"a": [0, 1]})
    assert (revoked.member_epoch, revoked.assignment) == (3, None)
    assert assigned(stage.stay("m2")) == {"a": [2, 3]}
    assert stage.group.state.value == "Stable"


def test_a_target_is_computed_at_most_once_in_the_assignment_interval() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 999
    second = stage.join("m2")
    assert (second.member_epoch, stage.group.epoch, stage.group.assignment_epoch) == (2, 3, 2)
    stage.now_ms += 1
    stage.stay("m1")
    assert stage.group.assignment_epoch == 3


def test_a_member_that_waits_for_a_target_asks_again_soon() -> None:
    stage = ConsumerStage()
    assert stage.join("m1").heartbeat_interval_ms == 5_000
    assert stage.join("m2").heartbeat_interval_ms == 500
    stage.now_ms += 1_000
    assert stage.stay("m2").heartbeat_interval_ms == 500  # The target is computed: m1 has yet to release partitions.
    assert state_of(stage, "m2") is MemberState.UNRELEASED_PARTITIONS
    assert stage.stay("m1").heartbeat_interval_ms == 5_000  # It has to revoke partitions, and says so when it has.
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    assert stage.stay("m2").heartbeat_interval_ms == 5_000
    assert state_of(stage, "m2") is MemberState.STABLE


def test_a_member_whose_pattern_is_not_resolved_yet_asks_again_soon() -> None:
    stage = ConsumerStage()
    joined = stage.heartbeat("m1", 0, owned={}, subscribed_topic_regex="a.*", rebalance_timeout_ms=60_000)
    assert (joined.error_code, joined.heartbeat_interval_ms) == (NONE, 500)


def test_waiting_members_of_a_large_group_share_the_rate() -> None:
    stage = ConsumerStage()
    stage.join("m0")
    intervals = [stage.join(f"m{number}").heartbeat_interval_ms for number in range(1, 121)]
    assert intervals == [max(500, 5 * number) for number in range(1, 121)]


@pytest.mark.parametrize(("waiting_ms", "interval_ms"), [(5_000, 5_000), (60_000, 5_000), (1, 5)])
def test_the_interval_of_waiting_members_is_a_setting(waiting_ms: int, interval_ms: int) -> None:
    stage = ConsumerStage(config=GroupConfig(waiting_heartbeat_interval_ms=waiting_ms))
    stage.join("m1")
    assert stage.join("m2").heartbeat_interval_ms == interval_ms


def test_an_interval_of_0_computes_every_target() -> None:
    stage = ConsumerStage(settings={"consumer.assignment.interval.ms": "0"})
    stage.join("m1")
    assert stage.join("m2").member_epoch == 3


def test_a_lost_answer_is_made_up_for() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 1_000
    stage.join("m2")
    stage.stay("m1")
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    assert stage.group.members["m1"].epoch == 3
    again = stage.heartbeat("m1", 2, owned={"a": [0]})
    assert (again.error_code, again.member_epoch) == (NONE, 3)


@pytest.mark.parametrize(
    ("epoch", "owned"), [(4, {"a": [0]}), (1, {"a": [0]}), (2, None), (2, {"a": [3]}), (2, {"b": []})]
)
def test_any_other_epoch_fences_the_member(epoch: int, owned: dict[str, list[int]] | None) -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 1_000
    stage.join("m2")
    stage.stay("m1")
    stage.heartbeat("m1", 2, owned={"a": [0, 1]})
    before = stage.group.members
    answer = stage.heartbeat("m1", epoch, owned=owned)
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (stage.written, stage.group.members) == ([], before)


@pytest.mark.parametrize(
    "owned",
    [
        [(b"z" * 16, [0])],
        [(bytes(16), [0])],
        [(id_of("a"), [-1, -5])],
        [(id_of("a"), [2**31 - 1])],
        [(id_of("a"), [0, 0, 1]), (id_of("a"), [0])],
        [(id_of("a"), [])],
    ],
    ids=["an unknown topic", "no topic", "negative", "too large", "twice", "none"],
)
def test_partitions_that_make_no_sense_change_nothing(owned: list[tuple[bytes, list[int]]]) -> None:
    """Seen at Apache Kafka 4.3.1."""
    stage = ConsumerStage()
    stage.join("m1")
    before = stage.group.members["m1"]
    told = [TopicPartitions(topic_id=topic_id, partitions=partitions) for topic_id, partitions in owned]
    answer = stage.heartbeat("m1", before.epoch, topic_partitions=told)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, before.epoch, None)
    assert (stage.written, stage.group.members) == ([], {"m1": before})


def test_a_fenced_member_rejoins_under_its_id() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    answer = stage.join("m1")
    assert (answer.error_code, answer.member_epoch, assigned(answer)) == (NONE, 2, {"a": [0, 1, 2, 3]})


def test_the_partitions_of_a_member_that_leaves_go_to_the_others() -> None:
    stage = ConsumerStage()
    for member_id in ("m1", "m2"):
        stage.join(member_id)
    stage.settle()
    answer = stage.heartbeat("m1", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "m1", -1)
    assert stage.written[-1] == "ConsumerGroupMetadata"
    stage.settle()
    assert sorted(stage.group.members["m2"].assigned[b"a" * 16]) == [0, 1, 2, 3]


def test_a_group_without_members_is_empty_and_keeps_its_epoch() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.heartbeat("m1", -1)
    assert (stage.group.state.value, stage.group.epoch) == ("Empty", 3)
    stage.now_ms += 1_000
    assert stage.join("m2").member_epoch == 4


def test_a_member_that_is_not_heard_of_is_removed() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.wait(44_999)
    assert "m1" in stage.group.members
    stage.wait(1)
    assert stage.group.members == {}


def test_a_member_that_does_not_revoke_is_removed_although_it_sends_heartbeats() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 1_000
    stage.join("m2")
    stage.stay("m1")
    stage.wait(29_999)
    assert stage.stay("m1").error_code == NONE
    stage.wait(1)
    assert stage.stay("m2").error_code == NONE
    assert [*stage.group.members] == ["m2"]


def test_a_member_that_revokes_in_time_stays() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.now_ms += 1_000
    stage.join("m2")
    stage.stay("m1")
    stage.stay("m1", owned={"a": [0, 1]})
    stage.wait(30_000)
    assert [*stage.group.members] == ["m1", "m2"]


def test_a_topic_that_grows_raises_the_epoch_at_the_next_heartbeat() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.topics(a=6)
    stage.now_ms += 1_000
    answer = stage.stay("m1")
    assert (answer.member_epoch, assigned(answer)) == (3, {"a": [0, 1, 2, 3, 4, 5]})


def test_other_topics_do_not_matter() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.topics(a=4, b=1)
    stage.now_ms += 1_000
    assert stage.stay("m1").member_epoch == 2
    assert stage.written == []


def test_a_group_that_moves_keeps_its_epoch() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    stage.take_over()
    assert (stage.stay("m1").member_epoch, stage.written) == (2, [])
    stage.wait(45_000)
    assert stage.group.members == {}, "the session runs at the new coordinator too"


def test_a_member_changes_its_topics_and_its_assignor() -> None:
    stage = ConsumerStage(counts={"a": 2, "b": 2})
    stage.join("m1")
    stage.now_ms += 1_000
    answer = stage.heartbeat("m1", 2, topics=["b"], owned={"a": [0, 1]}, server_assignor="range")
    assert (answer.member_epoch, assigned(answer)) == (2, {}), "a's partitions are to be revoked first"
    answer = stage.heartbeat("m1", 2, owned={})
    assert (answer.member_epoch, assigned(answer)) == (3, {"b": [0, 1]})
    assert stage.describe().assignor_name == "range"


def test_a_full_request_is_told_its_assignment() -> None:
    stage = ConsumerStage()
    stage.join("m1")
    answer = stage.heartbeat("m1", 2, topics=["a"], owned={"a": [0]}, rebalance_timeout_ms=30_000)
    assert (answer.member_epoch, assigned(answer)) == (2, {"a": [0, 1, 2, 3]})


def test_a_full_group_refuses_new_members_only() -> None:
    stage = ConsumerStage(config=GroupConfig(consumer=ConsumerGroupSettings(max_size=1)))
    stage.join("m1")
    refused = stage.join("m2")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert stage.join("m1").error_code == NONE


def test_a_blank_of_another_alphabet_is_no_blank() -> None:
    """Java trims the characters up to the space, and no others."""
    assert ConsumerStage().join("\u3000").error_code == NONE


def test_a_member_without_an_id_is_given_one_in_version_0() -> None:
    stage = ConsumerStage()
    answer = stage.join("", version=0)
    assert answer.member_id == "fresh-1"
    assert [*stage.group.members] == ["fresh-1"]


JOIN: dict[str, Any] = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 1,
    "subscribed_topic_names": ["a"],
    "topic_partitions": [],
}
INVALID = {
    "no group id": {"group_id": " "},
    "a group id of control characters": {"group_id": "\x1f\0"},
    "an empty instance id": {"instance_id": ""},
    "an empty rack": {"rack_id": ""},
    "no rebalance timeout": {"rebalance_timeout_ms": -1},
    "no partitions, not said": {"topic_partitions": None},
    "no topics": {"subscribed_topic_names": None},
    "leaves for a while without instance id": {"member_epoch": -2},
    "an epoch below -2": {"member_epoch": -3},
}


@pytest.mark.parametrize("change", INVALID.values(), ids=INVALID)
def test_an_invalid_request_is_refused_and_makes_no_group(change: dict[str, Any]) -> None:
    stage = ConsumerStage()
    answer = stage.heartbeat("m", 0, **{**JOIN, **change})
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message
    assert stage.shard.group("g") is None
    assert stage.heartbeat("m", 0, **JOIN).error_code == NONE


def test_a_member_makes_its_id_itself_from_version_1_on() -> None:
    assert ConsumerStage().join("").error_code == ErrorCode.INVALID_REQUEST


def test_an_assignor_that_is_not_there_is_refused() -> None:
    assert ConsumerStage().join("m1", server_assignor="sticky").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_group_that_does_not_exist_is_not_found(epoch: int) -> None:
    assert ConsumerStage().heartbeat("m1", epoch).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_refusals_have_the_words_of_apache_kafka() -> None:
    stage = ConsumerStage()
    assert stage.heartbeat("m1", 1).error_message == "Consumer group g not found."
    assert stage.heartbeat("m1", -1).error_message == "Group g not found."
    stage.join("m1", instance_id="i")
    fence = "epoch ({}) than the one known by the group coordinator (2). The member must abandon all its partitions"
    for answer, message in (
        (stage.heartbeat("m2", 2), "Member m2 is not a member of group g."),
        (stage.heartbeat("m2", -1), "Member m2 is not a member of group g."),
        (stage.heartbeat("m1", 2, instance_id="j"), "Instance id j is unknown."),
        (stage.heartbeat("m2", 2, instance_id="i"), "Static member m2 with instance id i was fenced by member m1."),
        (
            stage.join("m2", instance_id="i"),
            "Static member m2 with instance id i cannot join the group because the instance id is owned by m1 member.",
        ),
        (stage.heartbeat("m1", 9), f"The consumer group member has a greater member {fence.format(9)} and rejoin."),
        (stage.heartbeat("m1", 1), f"The consumer group member has a smaller member {fence.format(1)} and rejoin."),
    ):
        assert answer.error_message == message


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_member_that_does_not_exist_is_unknown(epoch: int) -> None:
    stage = ConsumerStage()
    stage.join("m1")
    assert stage.heartbeat("m2", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_write_that_the_log_refuses_changes_nothing() -> None:
    stage = ConsumerStage()
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.join("m1").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert stage.shard.group("g") is None
    stage.refusal = ErrorCode.NONE
    assert stage.join("m1").member_epoch == 2


# Static members


def test_a_static_member_that_is_away_keeps_its_partitions() -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    answer = stage.heartbeat("m1", -2, instance_id="i1")
    assert (answer.error_code, answer.member_epoch) == (NONE, -2)
    assert stage.written == ["ConsumerGroupCurrentMemberAssignment"]
    back = stage.join("m2", instance_id="i1")
    assert (back.error_code, back.member_epoch, assigned(back)) == (NONE, 2, {"a": [0, 1, 2, 3]})
    assert [*stage.group.members] == ["m2"]
    assert stage.group.epoch == 2, "no rebalance"
    stage.wait(45_000)
    assert stage.group.members == {}, "the session of the second one runs"


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    stage.heartbeat("m1", -2, instance_id="i1")
    stage.wait(45_000)
    assert stage.group.members == {}


def test_a_static_member_comes_back_to_a_full_group() -> None:
    """Its former self has the room that it needs."""
    stage = ConsumerStage(config=GroupConfig(consumer=ConsumerGroupSettings(max_size=1)))
    stage.join("m1", instance_id="i1")
    assert stage.join("m2", instance_id="i1").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    stage.heartbeat("m1", -2, instance_id="i1")
    assert stage.join("m2", instance_id="i2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.join("m2", instance_id="i1").error_code == NONE
    assert [*stage.group.members] == ["m2"]


def test_an_instance_id_belongs_to_one_member() -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    assert stage.join("m2", instance_id="i1").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert stage.heartbeat("m2", 2, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert stage.heartbeat("m1", 2, instance_id="i2").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat("m1", 2, instance_id="i1").error_code == NONE


def test_a_second_process_with_an_instance_id_changes_nothing_for_the_first() -> None:
    """It is refused as long as the first one lives, and what it sends prolongs no session and moves no partition."""
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    before = stage.group.members["m1"]
    for _ in range(8):
        stage.wait(5_000)
        for second in (
            stage.join("m2", instance_id="i1"),
            stage.heartbeat("m2", 2, instance_id="i1"),
            stage.heartbeat("m2", -1, instance_id="i1"),
            stage.heartbeat("m2", -2, instance_id="i1"),
        ):
            assert second.error_code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
            assert (stage.written, stage.group.members) == ([], {"m1": before})
    stage.wait(5_000)
    assert stage.group.members == {}, "the first one was not heard of for 45 s"
    assert assigned(stage.join("m2", instance_id="i1")) == {"a": [0, 1, 2, 3]}


def test_the_first_process_does_nothing_to_the_second_that_took_its_place() -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    stage.heartbeat("m1", -2, instance_id="i1")
    for epoch in (2, -1, -2):
        assert stage.heartbeat("m2", epoch, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID, (
            "joining first"
        )
    stage.join("m2", instance_id="i1")
    second = stage.group.members["m2"]
    for epoch in (2, -1, -2):
        assert stage.heartbeat("m1", epoch, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
        assert stage.heartbeat("m1", max(epoch, -1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (stage.written, stage.group.members) == ([], {"m2": second})
    assert stage.join("m1", instance_id="i1").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert stage.heartbeat("m2", 2, instance_id="i1").error_code == NONE


def test_a_static_member_may_leave_for_good() -> None:
    stage = ConsumerStage()
    stage.join("m1", instance_id="i1")
    assert stage.heartbeat("m1", -1, instance_id="i1").error_code == NONE
    assert (stage.group.members, stage.group.static_members) == ({}, {})


def test_a_static_member_that_rejoins_with_other_topics_rebalances() -> None:
    stage = ConsumerStage(counts={"a": 2, "b": 2})
    stage.join("m1", instance_id="i1")
    stage.heartbeat("m1", -2, instance_id="i1")
    stage.now_ms += 1_000
    back = stage.join("m2", ["b"], instance_id="i1")
    assert (back.error_code, stage.group.epoch) == (NONE, 3)
    stage.settle()
    assert sorted(stage.group.members["m2"].assigned) == [b"b" * 16]
