"""Several topics in one process: turns, failures of one, topics that come later, the command."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from moldau.broker.cli import main, table_follower
from moldau.broker.cli.table_follower import TableFollower
from moldau.lake.followed_topics import FollowedTopics, topics_like
from moldau.lake.follower import FollowProgress
from moldau.lake.opening import FollowChoices
from moldau.lake.sink import WriterReplaced
from moldau.protocol.record_builder import Record
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.client.cluster import BrokersUnavailable
from moldau.tables.refusals import PlaceUnavailable, Refused, SegmentReplaced
from tests.support.lake_stage import START_MS, LakeStage


class Turns:
    """Followers that are behind for some rounds, or fail."""

    def __init__(self, behind: dict[str, int], failures: dict[str, list[Exception]] | None = None) -> None:
        self.taken: list[str] = []
        self.opened: list[str] = []
        self.said: list[tuple[str, str]] = []
        self._behind = behind
        self._failures = failures or {}

    def open(self, choices: FollowChoices) -> Any:
        self.opened.append(choices.topic)
        return Turn(self, choices.topic), None

    def round(self, topic: str, rounds_max: int | None) -> bool:
        if self._failures.get(topic):
            raise self._failures[topic].pop(0)
        self.taken.append(f"{topic} {rounds_max}")
        self._behind[topic] -= 1
        return self._behind[topic] > 0

    def topics(self, names: list[str], *, is_one: bool = False, table: str | None = None) -> FollowedTopics:
        choices = FollowChoices({}, "", "warehouse", table=table)
        found = FollowedTopics(choices, self.open, lambda *said: self.said.append(said), lambda: False, is_one=is_one)
        found.add(names)
        return found


class Turn:
    def __init__(self, turns: Turns, topic: str) -> None:
        self._turns = turns
        self._topic = topic
        self.progress = FollowProgress()

    def catch_up(self, rounds_max: int | None = None) -> bool:
        return self._turns.round(self._topic, rounds_max)


def test_topics_take_turns_of_one_round_until_none_is_behind() -> None:
    turns = Turns({"a": 3, "b": 1, "c": 2})
    turns.topics(["a", "b", "c"]).catch_up()
    assert turns.taken == ["a 1", "b 1", "c 1", "a 1", "c 1", "a 1"] and turns.opened == ["a", "b", "c"]


def test_the_only_topic_makes_all_its_rounds_and_its_failure_is_raised() -> None:
    turns = Turns({"a": 1}, {"a": [OSError("full"), WriterReplaced("taken over")]})
    topics = turns.topics(["a"], is_one=True)
    for kind in (OSError, WriterReplaced):
        with pytest.raises(kind):
            topics.catch_up()
    topics.catch_up()
    assert turns.taken == ["a None"] and turns.said == []


def test_a_failure_that_may_pass_is_said_once_and_tried_again() -> None:
    turns = Turns({"a": 1, "b": 9}, {"a": [OSError("no route"), OSError("no route"), OSError("full")]})
    topics = turns.topics(["a", "b"])
    for _ in range(3):
        topics.catch_up()
    assert turns.said == [("a", "no route"), ("a", "full")]
    assert topics.has_failed and not topics.is_over
    assert [each.progress.is_followed for each in topics.measured()] == [False, True]
    topics.catch_up()
    assert turns.opened == ["a", "b", "a", "a", "a"] and turns.taken.count("a 1") == 1
    assert not topics.has_failed and all(each.progress.is_followed for each in topics.measured())


@pytest.mark.parametrize("kind", [BrokersUnavailable, PlaceUnavailable, SegmentReplaced])
def test_a_place_that_is_away_for_some_time_is_tried_again(kind: type[Exception]) -> None:
    turns = Turns({"a": 1, "b": 9}, {"a": [kind("away")]})
    topics = turns.topics(["a", "b"])
    topics.catch_up()
    assert turns.said == [("a", "away")] and topics.has_failed
    topics.catch_up()
    assert turns.opened == ["a", "b", "a"] and not topics.has_failed


def test_a_place_that_was_never_there_ends_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(choices: FollowChoices) -> Any:
        raise PlaceUnavailable("path: /lgos is not a directory")

    turns = Turns({})
    monkeypatch.setattr(turns, "open", refuse)
    topics = turns.topics(["a", "b"])
    topics.catch_up()
    assert topics.is_over and turns.said == [(each, "path: /lgos is not a directory") for each in "ab"]


def test_a_topic_that_is_refused_is_not_tried_again_and_the_others_go_on() -> None:
    turns = Turns({"a": 1, "b": 9}, {"a": [WriterReplaced("taken over")]})
    topics = turns.topics(["a", "b"])
    topics.catch_up()
    topics.catch_up()
    assert turns.said == [("a", "taken over")] and turns.opened == ["a", "b"]
    assert topics.has_failed and not topics.is_over


@pytest.mark.parametrize("table", [None, "shop.{topic}", "shop.of_{topic}"])
def test_two_topics_are_not_one_table(table: str | None) -> None:
    turns = Turns({"a-b": 1})
    topics = turns.topics(["a-b", "a.b", "A-B"], table=table)
    topics.catch_up()
    assert turns.opened == ["a-b"] and topics.has_failed
    assert [topic for topic, _ in turns.said] == ["a.b", "A-B"]
    assert all(said.endswith("is that of the topic a-b") for _, said in turns.said)


def test_the_second_topic_of_a_name_is_followed_if_the_table_is_not_that_of_the_first() -> None:
    """`a-b` was made after the table of `a.b`, and comes before it."""
    refused = Refused("table default.a_b has the topic a.b, not a-b")
    turns = Turns({"a-b": 1, "a.b": 9}, {"a-b": [refused]})
    topics = turns.topics(["a-b", "a.b"])
    topics.catch_up()
    assert turns.opened == ["a-b", "a.b"] and turns.said == [("a-b", str(refused))]
    topics.catch_up()
    assert turns.opened == ["a-b", "a.b"] and not topics.is_over
    assert [each.progress.is_followed for each in topics.measured()] == [False, True]


def put(stage: LakeStage, topic: str, *values: bytes) -> None:
    stage.append([Record(b"k", value, START_MS) for value in values], topic=topic)


def words(stage: LakeStage, *more: str) -> list[str]:
    told = ["--path", str(stage.logs), "--warehouse", str(stage.warehouse), "--mode", "append", "--once"]
    return ["follow-table", *told, *more]


def test_the_command_follows_several_and_says_which_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = LakeStage(tmp_path)
    put(stage, "orders", b'{"id":1}', b'{"id":2}')
    put(stage, "broken", b"no JSON")
    put(stage, "users", b'{"id":3}')
    told = words(stage, "--topic", "orders,broken,users", "--schema", "sample", "--table", "shop.t_{topic}")
    assert main(told) == 1
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if "has all of" in line] == [
        "shop.t_orders has all of orders: 2 rows added",
        "shop.t_users has all of users: 1 row added",
    ]
    assert "moldau: broken is not followed: broken-0, offset 0: " in shown.err
    assert "orders: commit 1: 2 rows; 0 offsets behind" in shown.err
    put(stage, "orders", b'{"id":4}')
    assert main(words(stage, "--topic-pattern", "orders|users", "--schema", "sample", "--table", "shop.t_{topic}")) == 0
    shown = capsys.readouterr()
    assert "shop.t_orders has all of orders: 1 row added" in shown.out and "broken" not in shown.out + shown.err


def test_a_pattern_finds_whole_names_and_no_internal_topic(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    for topic in ("shop.orders", "shop.users", "workshop.x", "__consumer_offsets"):
        put(stage, topic, b"v")
    options = {"path": str(stage.logs)}
    assert topics_like(LocalFiles(), options, r"shop\..*") == ["shop.orders", "shop.users"]
    assert topics_like(LocalFiles(), options, ".*") == ["shop.orders", "shop.users", "workshop.x"]
    assert topics_like(LocalFiles(), options, "none") == []


def test_places_that_cannot_be_listed_any_more_end_no_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    listed: list[list[str] | Exception] = [OSError("no route"), ["a"], OSError("no route"), OSError("no route"), ["b"]]

    def like(*_: object) -> list[str]:
        found = listed.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(table_follower, "topics_like", like)
    arguments = argparse.Namespace(topic=None, topic_pattern=".*")
    environment: Any = Namespace(fs=None)
    invocation: Any = Namespace(errors=Namespace(say=lambda line, _: said.append(line)))
    topics = Turns({"a": 1, "b": 1}).topics([])
    follower = TableFollower(arguments, FollowChoices({}, "", "warehouse"), invocation)
    with pytest.raises(OSError, match="no route"):
        follower._turn(topics, environment)  # At the start it is an error.
    for _ in range(4):
        follower._turn(topics, environment)
    assert sorted(topics.topics) == ["a", "b"] and not topics.has_failed
    assert said == ["moldau: no new topics are taken in: no route"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--topic", "a,,b"], "give each topic once, with a comma between two"),
        (["--topic", "a,a"], "give each topic once"),
        (["--topic", "a,b", "--table", "x.t"], "several topics need {topic} in it, as in sales.{topic}"),
        (["--topic-pattern", "a.*", "--table", "x.t"], "several topics need {topic}"),
        (["--topic-pattern", "("], "--topic-pattern (: "),
    ],
)
def test_what_cannot_be_followed_together_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], problem: str
) -> None:
    assert main(words(LakeStage(tmp_path), *more)) == 1
    assert problem in capsys.readouterr().err
