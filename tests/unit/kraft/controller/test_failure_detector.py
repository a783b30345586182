"""Who is taken to be gone before its session has ended, and who is not."""

from __future__ import annotations

from moldau.kraft.controller.failure_detector import FailureDetector


def beating(detector: FailureDetector, every_ms: int, until_ms: int, broker_id: int = 1) -> None:
    for now_ms in range(0, until_ms + 1, every_ms):
        detector.heartbeat(broker_id, now_ms)


def test_a_broker_that_beats_often_is_missed_soon_but_not_for_two_seconds_of_stall() -> None:
    detector = FailureDetector(2500)
    beating(detector, 250, 10_000)
    assert detector.suspected_brokers(10_000 + 2_250) == []
    assert detector.next_deadline_ms() == 12_500
    assert detector.suspected_brokers(12_500) == [1]


def test_one_that_beats_seldom_is_left_to_its_session() -> None:
    detector = FailureDetector(2500)
    beating(detector, 2000, 10_000)
    assert detector.suspected_brokers(10_000 + 9_000) == []


def test_after_a_stall_more_patience_for_a_while() -> None:
    detector = FailureDetector(2500)
    beating(detector, 250, 1_000)
    detector.heartbeat(1, 3_000)
    assert detector.suspected_brokers(3_000 + 9_000) == []
    for now_ms in range(3_250, 5_250, 250):
        detector.heartbeat(1, now_ms)
    assert detector.suspected_brokers(5_000 + 2_500) == [1]


def test_a_connection_that_broke_leaves_half_a_second() -> None:
    detector = FailureDetector(2500)
    beating(detector, 250, 1_000)
    detector.note_disconnected(1, 1_100)
    detector.note_disconnected(1, 1_500)
    assert detector.suspected_brokers(1_599) == [] and detector.suspected_brokers(1_600) == [1]
    detector.heartbeat(1, 1_599)
    assert detector.suspected_brokers(1_600) == [], "it came by another connection"


def test_one_that_was_never_heard_can_be_lost_too() -> None:
    detector = FailureDetector(2500)
    detector.note_disconnected(7, 100)
    assert detector.suspected_brokers(600) == [7]
    detector.forget(7)
    assert detector.suspected_brokers(600) == [] and detector.next_deadline_ms() is None


def test_it_can_be_switched_off() -> None:
    detector = FailureDetector(0)
    beating(detector, 250, 1_000)
    detector.note_disconnected(1, 1_000)
    assert detector.suspected_brokers(1_000_000) == [] and detector.next_deadline_ms() is None


def test_a_former_leader_has_been_silent_since_it_was_heard_last_whatever_it_was_heard_by() -> None:
    detector = FailureDetector(2500)
    detector.note_last_heard(1, 300)
    assert detector.next_deadline_ms() == 2800
    assert detector.suspected_brokers(2799) == [] and detector.suspected_brokers(2800) == [1]
    detector.heartbeat(1, 2700)
    detector.note_last_heard(1, 300)
    assert detector.suspected_brokers(2700 + 2500) == [], "it beats, and has stalled: more patience for a while"


def test_a_former_leader_whose_connection_breaks_is_gone_sooner() -> None:
    detector = FailureDetector(2500)
    detector.note_last_heard(1, 300)
    detector.note_disconnected(1, 1000)
    assert detector.suspected_brokers(1499) == [] and detector.suspected_brokers(1500) == [1]
