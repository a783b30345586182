"""Subscriptions by regular expression: when they are resolved, and what the group does with the topics."""

from __future__ import annotations

import pytest

from moldau.coordinator.consumer.events import RegexesResolved, ResolveRegexes
from moldau.coordinator.consumer.regular_expressions import matching_topics, regex_fault
from moldau.protocol.errors import ErrorCode
from tests.support.consumer_stage import CLIENT, ConsumerStage, assigned, id_of


def joined(regex: str = "a.*") -> ConsumerStage:
    stage = ConsumerStage(counts={"a": 2, "b": 2})
    stage.join("m1", subscribed_topic_regex=regex)
    return stage


def test_a_new_expression_is_resolved_with_the_rights_of_the_client() -> None:
    stage = joined()
    assert stage.commands == [ResolveRegexes("g", frozenset({"a.*"}), stage.image, CLIENT)]
    assert stage.group.members["m1"].assigned == {}


def test_its_topics_raise_the_epoch_and_are_assigned() -> None:
    stage = joined()
    assert stage.resolve()
    assert stage.written == ["ConsumerGroupRegularExpression", "ConsumerGroupMetadata"]
    stage.now_ms += 1_000
    answer = stage.stay("m1")
    assert assigned(answer) == {"a": [0, 1]}
    assert stage.group.subscriptions.is_homogeneous(1)


def test_an_expression_that_matches_nothing_gives_to_others_what_its_member_gave_up() -> None:
    stage = joined()
    stage.resolve()
    stage.join("m2", subscribed_topic_names=["a"])
    stage.settle()
    assert stage.group.members["m1"].assigned, "both have a partition"
    epoch = stage.group.members["m1"].epoch
    stage.heartbeat("m1", epoch, subscribed_topic_regex="w.*", topic_partitions=[])
    stage.now_ms += 10_001
    stage.stay("m1")
    assert stage.resolve()
    stage.settle()
    assert [len(each) for each in stage.group.members["m2"].assigned.values()] == [2]


def test_an_invalid_expression_is_refused() -> None:
    stage = ConsumerStage()
    answer = stage.join("m1", subscribed_topic_regex="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert stage.shard.group("g") is None


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(", "missing ): ("),
        ("(?=a)", "invalid perl operator: (?="),
        (r"\1", r"invalid escape sequence: \1"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a{1000}){1000}", "invalid repetition size: {1000}"),
        (r"\pL{1000}", "pattern too large - compile failed"),
    ],
)
def test_an_expression_that_is_refused_changes_nothing(regex: str, reason: str) -> None:
    """Apache Kafka 4.3.1 refuses all but the last two (`regex_fault`)."""
    stage = joined()
    stage.commands.clear()
    before = stage.group.members["m1"]
    answer = stage.heartbeat("m1", before.epoch, subscribed_topic_regex=regex)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message == f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
    assert (stage.group.members, stage.written, stage.commands) == ({"m1": before}, [], [])


@pytest.mark.parametrize("regex", ["(a+)+$", "(.*)(.*)(.*)(.*)(.*)(.*)b", "x" * 30_000])
def test_an_expression_that_explodes_elsewhere_is_accepted(regex: str) -> None:
    """RE2 needs linear time. Apache Kafka 4.3.1 accepts these, too."""
    assert joined(regex).group.members["m1"].subscribed_regex == regex


def test_an_empty_expression_subscribes_to_nothing() -> None:
    stage = ConsumerStage()
    answer = stage.join("m1", subscribed_topic_regex="")
    assert (answer.error_code, assigned(answer), stage.commands) == (ErrorCode.NONE, {}, [])


def test_a_second_member_with_the_expression_needs_no_resolution() -> None:
    stage = joined()
    stage.resolve()
    stage.settle()
    epoch = stage.group.epoch
    stage.join("m2", subscribed_topic_regex="a.*")
    assert (stage.commands, stage.group.epoch) == ([], epoch + 1)


def test_only_one_resolution_of_a_group_runs() -> None:
    stage = joined()
    stage.join("m2", subscribed_topic_regex="b.*")
    assert len(stage.commands) == 1
    stage.resolve()
    stage.now_ms += 10_001
    stage.stay("m2")
    assert stage.resolve(), "the second one is resolved at the next heartbeat after 10 s"
    assert sorted(stage.group.resolved) == ["a.*", "b.*"]


def test_a_resolution_without_outcome_is_given_up() -> None:
    stage = joined()
    stage.commands.clear()
    stage.wait(40_000)
    stage.stay("m1")
    assert stage.commands == []
    stage.wait(20_000)
    stage.stay("m1")
    assert len(stage.commands) == 1


def test_new_topics_are_looked_for_at_the_next_heartbeat_after_10_s() -> None:
    stage = joined()
    stage.resolve()
    stage.topics(a=2, b=2, a2=1)
    stage.stay("m1")
    assert stage.commands == []
    stage.now_ms += 10_001
    stage.stay("m1")
    assert stage.resolve()
    assert stage.group.resolved["a.*"].topics == {"a", "a2"}


def test_more_names_than_the_log_can_store_are_not_stored() -> None:
    """They are searched for again when the resolution is given up, not at the next heartbeat."""
    stage = joined()
    most = stage.config.member_metadata_bytes_max
    stage.step(RegexesResolved("g", {"a.*": frozenset({"a"})}, 1, 1, most + 1))
    assert (stage.written, stage.group.resolved) == ([], {})
    stage.commands.clear()
    stage.now_ms += 20_000
    stage.stay("m1")
    assert stage.commands == []
    stage.wait(40_000)
    stage.stay("m1")
    assert len(stage.commands) == 1
    stage.step(RegexesResolved("g", {"a.*": frozenset({"a"})}, 1, 1, most))
    assert stage.group.resolved["a.*"].topics == {"a"}


def test_old_resolutions_are_refreshed() -> None:
    stage = joined()
    stage.resolve()
    epoch = stage.group.epoch
    stage.now_ms += 600_001
    stage.stay("m1")
    assert stage.resolve()
    assert stage.group.epoch == epoch, "the same topics do not raise the epoch"


def test_a_topic_that_may_not_be_described_any_more_is_taken_away_at_the_refresh() -> None:
    """A resolution has the rights of its time; what it leaves out goes, and what it has again comes back."""
    stage = ConsumerStage(counts={"a": 2, "b": 2})
    stage.join("m1", subscribed_topic_regex="a|b")
    for allowed in ({"a", "b"}, {"a"}, set(), {"b"}):
        (search,) = stage.commands
        assert isinstance(search, ResolveRegexes)
        stage.commands.clear()
        epoch = stage.group.epoch
        topics = {"a|b": frozenset[str](allowed)}
        stage.step(RegexesResolved("g", topics, search.image.version, stage.wall_ms))
        assert stage.group.epoch == epoch + 1
        stage.settle()
        assert {*stage.group.members["m1"].assigned} == {id_of(name) for name in allowed}
        for _ in range(20):
            stage.now_ms += 30_001
            stage.stay("m1")


def test_an_expression_that_no_member_uses_is_removed() -> None:
    stage = joined()
    stage.resolve()
    stage.settle()
    stage.heartbeat("m1", stage.group.members["m1"].epoch, subscribed_topic_regex="", topics=["b"], owned={"a": [0, 1]})
    assert "-ConsumerGroupRegularExpression" in stage.written
    assert not stage.group.is_subscribed_to("a")
    stage.settle()
    assert sorted(stage.group.members["m1"].assigned) == [b"b" * 16]


def test_the_last_member_takes_its_expression_along() -> None:
    stage = joined()
    stage.resolve()
    stage.heartbeat("m1", -1)
    assert "-ConsumerGroupRegularExpression" in stage.written
    assert (stage.group.resolved, stage.group.metadata_hash) == ({}, 0)


def test_an_outcome_for_a_group_that_is_gone_does_nothing() -> None:
    stage = ConsumerStage()
    stage.step(RegexesResolved("g", {"a.*": frozenset({"a"})}, 1, 1))
    assert (stage.written, stage.shard.group("g")) == ([], None)


def test_an_outcome_for_an_expression_that_nobody_uses_is_left_out() -> None:
    stage = joined()
    stage.step(RegexesResolved("g", {"b.*": frozenset({"b"})}, 1, 1))
    assert stage.written == []


def test_the_whole_name_must_match() -> None:
    assert matching_topics(["a", "a.*", "("], ["a", "ab", "ba"]) == {"a": {"a"}, "a.*": {"a", "ab"}, "(": set()}


@pytest.mark.parametrize("regex", ["(?=a)b", r"(a)\1", "a{2000}", "[z-a]"])
def test_what_re2_does_not_know_is_a_fault(regex: str) -> None:
    assert regex_fault(regex)
