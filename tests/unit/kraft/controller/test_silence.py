"""Who is taken to be gone before its session has ended, and who is not."""

from __future__ import annotations

from kraft.controller.silence import Silences


def beating(silences: Silences, every_ms: int, until_ms: int, broker_id: int = 1) -> None:
    for now_ms in range(0, until_ms + 1, every_ms):
        silences.heard(broker_id, now_ms)


def test_a_broker_that_beats_often_is_missed_soon_but_not_for_two_seconds_of_stall() -> None:
    silences = Silences(2500)
    beating(silences, 250, 10_000)
    assert silences.expired(10_000 + 2_250) == []
    assert silences.next_deadline_ms() == 12_500
    assert silences.expired(12_500) == [1]


def test_one_that_beats_seldom_is_left_to_its_session() -> None:
    silences = Silences(2500)
    beating(silences, 2000, 10_000)
    assert silences.expired(10_000 + 9_000) == []


def test_after_a_stall_more_patience_for_a_while() -> None:
    silences = Silences(2500)
    beating(silences, 250, 1_000)
    silences.heard(1, 3_000)
    assert silences.expired(3_000 + 9_000) == []
    for now_ms in range(3_250, 5_250, 250):
        silences.heard(1, now_ms)
    assert silences.expired(5_000 + 2_500) == [1]


def test_a_connection_that_broke_leaves_half_a_second() -> None:
    silences = Silences(2500)
    beating(silences, 250, 1_000)
    silences.lost(1, 1_100)
    silences.lost(1, 1_500)
    assert silences.expired(1_599) == [] and silences.expired(1_600) == [1]
    silences.heard(1, 1_599)
    assert silences.expired(1_600) == [], "it came by another connection"


def test_one_that_was_never_heard_can_be_lost_too() -> None:
    silences = Silences(2500)
    silences.lost(7, 100)
    assert silences.expired(600) == [7]
    silences.forget(7)
    assert silences.expired(600) == [] and silences.next_deadline_ms() is None


def test_it_can_be_switched_off() -> None:
    silences = Silences(0)
    beating(silences, 250, 1_000)
    silences.lost(1, 1_000)
    assert silences.expired(1_000_000) == [] and silences.next_deadline_ms() is None


def test_a_former_leader_has_been_silent_since_it_was_heard_last_whatever_it_was_heard_by() -> None:
    silences = Silences(2500)
    silences.silent_since(1, 300)
    assert silences.next_deadline_ms() == 2800
    assert silences.expired(2799) == [] and silences.expired(2800) == [1]
    silences.heard(1, 2700)
    silences.silent_since(1, 300)
    assert silences.expired(2700 + 2500) == [], "it beats, and has stalled: more patience for a while"


def test_a_former_leader_whose_connection_breaks_is_gone_sooner() -> None:
    silences = Silences(2500)
    silences.silent_since(1, 300)
    silences.lost(1, 1000)
    assert silences.expired(1499) == [] and silences.expired(1500) == [1]
