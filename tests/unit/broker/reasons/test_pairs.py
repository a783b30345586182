"""Causes and kinds of groups: each pair has a test with a real client, or a reason for which there is no such pair."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance.scenarios.daily import DAILY_TOOL_SCENARIOS
from tests.conformance.scenarios.reasons import ALL, CLASSIC, CONSUMER, SHARE, STORIES, STREAMS, WITH_OFFSETS

ROOT: Final = Path(__file__).parents[4]
PLACES: Final = (
    "broker/cli/daily/test_group_explain.py",
    "broker/cli/daily/test_group_without_history.py",
    "broker/reasons/test_aiokafka.py",
)
"""The tests with confluent-kafka and aiokafka. The stories of the conformance have members in Java."""
NO_POSITION: Final = "a share group has no committed position of a member: any member may get any record"
NO_STATIC: Final = "the protocol has no static members, or Apache Kafka's client of it takes no group.instance.id"
NO_CHOICE: Final = "the broker chooses the assignor"
NO_SEEK: Final = "a Streams application neither seeks nor commits by itself"
NO_EXPRESSION: Final = "a share consumer subscribes to names alone"
READ_TO_THE_END: Final = "test_a_group_that_has_read_all_with_and_without_its_member"
ONE_NAME: Final = "the application of the stories reads topics by their names"


class Row(NamedTuple):
    """A cause, by its symptom and what tells it from others of the symptom."""

    symptom: str
    cause: str
    told: dict[str, str]
    """For each kind the name of a story or of a test, or the reason for which there is none."""


def by(test: str, *kinds: str) -> dict[str, str]:
    """The same test for these kinds."""
    return dict.fromkeys(kinds, test)


OFFSETS_ALONE: Final = {SHARE: NO_POSITION}
CLIENTS: Final = (CLASSIC, CONSUMER)
ROWS: Final = (
    Row("stands-still", "busy, or does not commit", by("stands_still", *WITH_OFFSETS) | OFFSETS_ALONE),
    Row("slow", "behind", by("is_slow", *WITH_OFFSETS) | OFFSETS_ALONE),
    Row(
        "lags",
        "behind",
        by("test_lag_of_a_member_whose_last_commit_is_not_told", *WITH_OFFSETS) | by("deletes_records", SHARE),
    ),
    Row("not-committed", "no first commit", by("commits_nothing", *WITH_OFFSETS) | by("holds_back", SHARE)),
    Row("offline", "no leader", dict.fromkeys(ALL, "the lag of a group of any kind is not known then")),
    Row("no-members", "closed", by("has_no_members", *ALL)),
    Row("no-members", "killed", by("is_killed", *ALL)),
    Row("no-members", "polls too late", by("polls_too_late", *ALL)),
    Row("records-lost", "deleted before they are read", by("deletes_records", *ALL)),
    Row("records-lost", "skipped", by("skips", *WITH_OFFSETS) | OFFSETS_ALONE),
    Row("topic-deleted", "made again", by("is_made_again", *ALL)),
    Row(
        "offset-beyond-end",
        "committed beyond the end",
        by("is_beyond_the_end", *CLIENTS) | {STREAMS: NO_SEEK} | OFFSETS_ALONE,
    ),
    Row("offsets-expired", "offsets.retention", by("expires", *WITH_OFFSETS) | {SHARE: "its offsets do not expire"}),
    Row("offsets-deleted", "by a request", by("is_deleted_by_request", *ALL)),
    Row("offsets-set", "an administrator", by("is_set_ahead", *WITH_OFFSETS) | by("goes_back", SHARE)),
    Row("commit-went-back", "an administrator", by("goes_back", *WITH_OFFSETS) | {SHARE: "it is told as offsets-set"}),
    Row("commit-went-back", "a seek", by("seeks_back", *CLIENTS) | {STREAMS: NO_SEEK} | OFFSETS_ALONE),
    Row(
        "commit-went-back",
        "in a transaction",
        by("test_a_transaction_that_sets_an_offset_back", *CLIENTS) | {STREAMS: NO_SEEK} | OFFSETS_ALONE,
    ),
    Row(
        "redelivered",
        "released",
        dict.fromkeys(WITH_OFFSETS, "records come back by offsets alone") | by("is_released", SHARE),
    ),
    Row("given-up", "rejected", dict.fromkeys(WITH_OFFSETS, "records are not given up") | by("is_released", SHARE)),
    Row("held-by-transaction", "an open transaction", by("is_held_by_a_transaction", *ALL)),
    Row("rebalances", "topics that grow", by("grows", *ALL)),
    Row(
        "rebalances",
        "an expression matches more",
        by("matches_more", *CLIENTS) | {STREAMS: ONE_NAME, SHARE: NO_EXPRESSION},
    ),
    Row("rebalances", "members come and go", by("joins_often", *ALL)),
    Row(
        "rebalancing",
        "a member does not give up its partitions",
        by("waits_for_a_member", *CLIENTS)
        | {STREAMS: "its threads poll by themselves", SHARE: "no member waits for another"},
    ),
    Row("refused", "another assignor", by("has_another_assignor", *CLIENTS) | {STREAMS: NO_CHOICE, SHARE: NO_CHOICE}),
    Row("refused", "another kind", by("has_another_kind", *ALL)),
    Row("refused", "a full group", by("has_too_many", *ALL)),
    Row("taken-over", "a restart", by("comes_back", *CLIENTS) | {STREAMS: NO_STATIC, SHARE: NO_STATIC}),
    Row("fenced", "two of one instance id", by("has_twins", *CLIENTS) | {STREAMS: NO_STATIC, SHARE: NO_STATIC}),
    Row(
        "commits-refused",
        "the partition was lost",
        by("commits_too_late", CLASSIC)
        | by("test_a_commit_after_the_partition_was_lost", CONSUMER, STREAMS)
        | {SHARE: "an acknowledgement that is refused is the member's alone: the record comes back"},
    ),
    Row("removed", "paused", by("is_paused", *ALL)),
    Row(
        "unread",
        "its members read another topic",
        by("reads_another_topic", *CLIENTS) | {STREAMS: "another topology is another application", SHARE: NO_POSITION},
    ),
    Row("gone", "its offsets went", by("is_made_again", *WITH_OFFSETS) | {SHARE: "it stays without offsets"}),
    Row(
        "well",
        "nothing",
        by("test_a_group_that_reads_lags_and_leaves", *CLIENTS) | by(READ_TO_THE_END, STREAMS, SHARE),
    ),
    Row("idle", "nothing", by(READ_TO_THE_END, *ALL)),
    Row("no-history", "the user may not describe the group's settings", by(READ_TO_THE_END, *ALL)),
    Row("no-history", "a broker of Apache Kafka", by("moldau-groups", *ALL)),
)
TESTS: Final = {
    name for place in PLACES for name in re.findall(r"^def (test_\w+)", (ROOT / "tests/unit" / place).read_text(), re.M)
}
TOOLS: Final = {scenario.name for scenario in DAILY_TOOL_SCENARIOS}
"""The scenarios of the conformance that ask both brokers by the command line."""
STORY_KINDS: Final = {story.run.__name__: story.kinds for story in STORIES}


def test_each_cause_has_an_answer_for_each_kind() -> None:
    for row in ROWS:
        assert row.told.keys() == set(ALL), row
        for kind, told in row.told.items():
            if " " in told:
                continue
            assert told in TESTS | TOOLS or kind in STORY_KINDS[told], (row.symptom, row.cause, kind)


def test_each_story_and_each_symptom_is_in_the_table() -> None:
    told = {(test, kind) for row in ROWS for kind, test in row.told.items()}
    assert {(name, kind) for name, kinds in STORY_KINDS.items() for kind in kinds} <= told
    section = (ROOT / "docs/groups.md").read_text().partition("## Why a group lags")[2].partition("\n## ")[0]
    words = set(
        re.findall(r"`([a-z-]+)`", "".join(line.split(" | ")[0] for line in section.splitlines() if "|" in line))
    )
    assert words == {row.symptom for row in ROWS}


def test_twenty_causes_have_a_real_client_in_each_kind_that_has_them() -> None:
    tested = {kind: sum(row.told[kind] in TESTS | STORY_KINDS.keys() for row in ROWS) for kind in ALL}
    assert tested[CLASSIC] >= 30 and tested[CONSUMER] >= 30 and tested[STREAMS] >= 20 and tested[SHARE] >= 15, tested
