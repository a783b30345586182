"""The sentences about groups: which symptom is named, which causes, and that no other sentence is said."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moldau.broker.reasons.explain import Finding, explain_group
from moldau.broker.reasons.facts import GroupFacts, History, MemberFacts, PartitionFacts, RedeliveredRecords
from moldau.coordinator.group.history import Cause, GroupEvent

NOW_MS = 10_000_000
MEMBER = MemberFacts("consumer-3-uuid", "consumer-3", "/10.0.0.7")


def told(*events: GroupEvent, heard_ms: int = NOW_MS - 2_000) -> History:
    """A history of a coordinator that has run for two hours; events without times were a minute ago."""
    timed = [
        each if each.last_ms else each._replace(first_ms=NOW_MS - 60_000, last_ms=NOW_MS - 60_000) for each in events
    ]
    return History(NOW_MS, NOW_MS - 7_200_000, timed, {MEMBER.member_id: heard_ms}, {})


def facts(
    *partitions: PartitionFacts,
    members: Sequence[MemberFacts] = (MEMBER,),
    history: History | None = None,
    state: str = "Stable",
    kind: str = "classic",
) -> GroupFacts:
    return GroupFacts("orders-app", kind, state, members, partitions, told() if history is None else history)


def orders(**known: int | str | list[RedeliveredRecords] | None) -> PartitionFacts:
    """A partition that the member reads to its end."""
    whole = PartitionFacts("orders", 2, 100, 0, 100, None, 0, NOW_MS - 1_000, MEMBER.member_id)
    return whole._replace(**known)  # type: ignore[arg-type]


def the_one(found: list[Finding]) -> Finding:
    (sentence,) = found
    return sentence


def test_a_group_without_a_problem_has_one_sentence() -> None:
    sentence = the_one(explain_group(facts(orders())))
    assert not sentence.is_problem
    assert sentence.text == "the group is Stable with 1 member and 1 partition, and has no lag"


def test_a_partition_whose_lag_is_not_known_is_no_partition_without_lag() -> None:
    offline = orders(log_start_offset=None, high_watermark=None, lag_ms=None, is_offline=True)
    sentence = the_one(explain_group(facts(offline)))
    assert (sentence.symptom, sentence.advice, sentence.is_problem) == ("offline", "moldau cluster-status", True)
    assert sentence.text == "orders-2: no leader tells its offsets, so the lag is not known"
    assert [each.symptom for each in explain_group(facts(offline, members=()))] == ["offline"]


def test_a_member_that_stands_still_while_it_sends_heartbeats() -> None:
    stuck = orders(high_watermark=81_304, lag_ms=240_000, committed_at_ms=NOW_MS - 240_000)
    sentence = the_one(explain_group(facts(stuck)))
    assert sentence.symptom == "stands-still"
    assert sentence.text == (
        "orders-2 lags by 81,204 records, 4 min: member consumer-3 at 10.0.0.7 committed last 4 min ago and was heard "
        "of 2 s ago: it is busy with the records that it has, stands still, or does not commit"
    )


def test_a_member_that_commits_and_is_behind() -> None:
    sentence = the_one(explain_group(facts(orders(high_watermark=1_100, lag_ms=9_000))))
    assert (sentence.symptom, "so it goes on and is behind" in sentence.text) == ("slow", True)


def test_a_member_that_has_committed_nothing() -> None:
    sentence = the_one(explain_group(facts(orders(committed_offset=None, committed_at_ms=None))))
    assert sentence.symptom == "not-committed"


def test_a_group_without_members_names_the_last_one() -> None:
    gone = GroupEvent(Cause.SESSION_EXPIRED, "consumer-1-x", "consumer-1", "/10.0.0.9", 45_000)
    left = explain_group(
        facts(orders(high_watermark=150, lag_ms=5_000, member_id=None), members=(), state="Empty", history=told(gone))
    )
    assert the_one(left).text == (
        "the group has no members: member consumer-1 at 10.0.0.9 was the last one, 1 min ago, and was not heard of for "
        "its session of 45 s: its process ended, stood still, or could not reach this broker. "
        "It lags by 50 records, 5 s"
    )


def test_records_that_retention_took_before_the_group_read_them() -> None:
    sentence = the_one(explain_group(facts(orders(committed_offset=40, log_start_offset=60, high_watermark=60))))
    assert sentence.symptom == "records-lost"
    assert "up to 20 records from offset 40 to 59 are gone" in sentence.text


def test_a_topic_that_was_made_again_under_its_name() -> None:
    sentence = the_one(explain_group(facts(orders(committed_offset=500, high_watermark=20))))
    assert sentence.symptom == "offset-beyond-end"


def test_a_transaction_that_holds_readers() -> None:
    held = orders(
        committed_offset=100, last_stable_offset=100, high_watermark=180, lag_ms=90_000, committed_at_ms=NOW_MS - 90_000
    )
    sentence = the_one(explain_group(facts(held)))
    assert sentence.symptom == "held-by-transaction"
    assert "at offset 100, for 1 min 30 s: they do not get the 80 offsets after it" in sentence.text
    running = orders(
        committed_offset=100, last_stable_offset=100, high_watermark=180, lag_ms=200, committed_at_ms=NOW_MS - 200
    )
    assert the_one(explain_group(facts(running))).symptom == "slow"


def test_a_partition_that_no_member_reads() -> None:
    sentence = the_one(explain_group(facts(orders(), orders(partition=3, member_id=None, high_watermark=170))))
    assert (sentence.symptom, sentence.text[:8]) == ("unread", "orders-3")


def rebalances(*pairs: GroupEvent) -> list[GroupEvent]:
    """Events, each followed by the rebalance that it caused."""
    events: list[GroupEvent] = []
    for number, cause in enumerate(pairs):
        began = GroupEvent(Cause.REBALANCE_BEGAN, cause.member_id, cause.client_id, cause.client_host, number)
        events += [cause, began._replace(detail=cause.cause.value)]
    return events


def test_rebalances_are_counted_by_cause() -> None:
    busy = GroupEvent(Cause.JOIN_TIMED_OUT, MEMBER.member_id, MEMBER.client_id, MEMBER.host, 300_000)
    new = GroupEvent(Cause.JOINED, "consumer-4-uuid", "consumer-4", "/10.0.0.8")
    sentence = the_one(explain_group(facts(orders(), history=told(*rebalances(*[busy] * 9, new, new)))))
    assert sentence.symptom == "rebalances"
    assert sentence.text == (
        "the group rebalanced 11 times in the last hour: 9 times because member consumer-3 at 10.0.0.7 did not join "
        "again within 5 min (max.poll.interval.ms): it was busy with its records, twice because member consumer-4 at "
        "10.0.0.8 joined"
    )
    assert "max.poll.records" in sentence.advice


def test_two_rebalances_are_a_start_and_not_told() -> None:
    new = GroupEvent(Cause.JOINED, MEMBER.member_id, MEMBER.client_id, MEMBER.host)
    assert the_one(explain_group(facts(orders(), history=told(*rebalances(new, new))))).symptom == "well"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("consumer poll timeout has expired.", "left because it did not poll within max.poll.interval.ms"),
        ("", "left: it was closed, or did not poll within max.poll.interval.ms"),
        ("the consumer is being closed", "left ('the consumer is being closed')"),
    ],
)
def test_a_member_that_left_says_what_is_known(reason: str, said: str) -> None:
    left = GroupEvent(Cause.LEFT, MEMBER.member_id, MEMBER.client_id, MEMBER.host, detail=reason)
    assert said in the_one(explain_group(facts(orders(), history=told(*rebalances(left, left, left))))).text


def test_a_commit_after_the_partition_was_lost() -> None:
    refused = GroupEvent(
        Cause.COMMIT_REFUSED, MEMBER.member_id, MEMBER.client_id, MEMBER.host, detail="ILLEGAL_GENERATION"
    )
    sentence = the_one(explain_group(facts(orders(), history=told(refused))))
    assert sentence.symptom == "commits-refused"
    assert "with ILLEGAL_GENERATION: the group had rebalanced before it" in sentence.text


@pytest.mark.parametrize(
    ("cause", "error", "symptom", "said"),
    [
        (Cause.REFUSED, "INCONSISTENT_GROUP_PROTOCOL", "refused", "two applications use one group id"),
        (Cause.FENCED, "FENCED_INSTANCE_ID", "fenced", "two processes use one group.instance.id"),
        (Cause.REFUSED, "GROUP_MAX_SIZE_REACHED", "refused", "all the members that it may have"),
    ],
)
def test_clients_that_are_refused(cause: Cause, error: str, symptom: str, said: str) -> None:
    sentence = the_one(
        explain_group(facts(orders(), history=told(GroupEvent(cause, "x", "app-2", "/10.0.0.8", detail=error))))
    )
    assert (sentence.symptom, said in sentence.text) == (symptom, True)


def test_offsets_that_expired_went_back_or_were_deleted() -> None:
    events = [
        GroupEvent(Cause.OFFSETS_EXPIRED, number=3),
        GroupEvent(Cause.COMMIT_WENT_BACK, number=40, detail="orders-2"),
        GroupEvent(Cause.OFFSETS_DELETED, number=1),
    ]
    found = explain_group(facts(orders(), history=told(*events)))
    assert [each.symptom for each in found] == ["offsets-expired", "offsets-deleted", "commit-went-back"]
    assert "set orders-2 back by 40 offsets" in found[2].text


def test_what_is_older_than_an_hour_is_not_told() -> None:
    old = GroupEvent(Cause.OFFSETS_EXPIRED, number=3, first_ms=1, last_ms=NOW_MS - 3_700_000)
    assert the_one(explain_group(facts(orders(), history=told(old)))).symptom == "well"


def test_a_broker_without_a_history_is_said() -> None:
    found = explain_group(GroupFacts("g", "classic", "Stable", [MEMBER], [orders(high_watermark=150)], None))
    assert [each.symptom for each in found] == ["lags", "no-history"]


def test_a_history_survives_its_way_to_the_client() -> None:
    event = GroupEvent(Cause.LEFT, "m", "app", "/10.0.0.7", 3, "bye", 5, 6, 7)
    history = History(9, 1, (event,), {"m": 4}, {("orders", 2): 8})
    assert History.from_json(history.to_json()) == history
    later = history.to_json().replace('"left"', '"a-cause-of-a-later-version"')
    assert History.from_json(later).events == ()
    with pytest.raises(ValueError, match="the history of the group cannot be read"):
        History.from_json('{"now_ms":1}')
