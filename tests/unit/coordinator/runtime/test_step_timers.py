"""Deadlines that move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.classic.events import ClassicTimer
from moldau.coordinator.group.group import TimerKey
from moldau.coordinator.runtime.step import SETTLED_AT_ONCE, RestorableTimers, Timers

A, B, C = (TimerKey(ClassicTimer.SESSION, "g", name) for name in "abc")


def due(timers: Timers[TimerKey], now_ms: int) -> list[TimerKey]:
    found = []
    while (key := timers.pop_due(now_ms)) is not None:
        found.append(key)
    return found


def test_keys_are_due_in_the_order_of_their_deadlines() -> None:
    timers: Timers[TimerKey] = Timers()
    timers.schedule(A, 30)
    timers.schedule(B, 10)
    timers.schedule(C, 20)
    assert timers.next_deadline_ms() == 10
    assert due(timers, 20) == [B, C]
    assert due(timers, 29) == []
    assert due(timers, 30) == [A]
    assert timers.next_deadline_ms() is None


def test_a_key_that_was_moved_back_is_not_due_at_the_old_time() -> None:
    timers: Timers[TimerKey] = Timers()
    timers.schedule(A, 10)
    timers.schedule(A, 50)
    assert timers.next_deadline_ms() == 50
    assert due(timers, 49) == []
    assert due(timers, 50) == [A]


def test_a_key_that_was_moved_forward_fires_once() -> None:
    timers: Timers[TimerKey] = Timers()
    timers.schedule(A, 50)
    timers.schedule(A, 10)
    assert due(timers, 100) == [A]


def test_a_cancelled_key_can_be_scheduled_again() -> None:
    timers: Timers[TimerKey] = Timers()
    timers.schedule(A, 10)
    timers.cancel(A)
    timers.cancel(B)
    assert timers.next_deadline_ms() is None
    timers.schedule(A, 20)
    assert due(timers, 10) == []
    assert due(timers, 20) == [A]


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.one_of(st.none(), st.integers(0, 50)), st.booleans())))
def test_they_do_what_a_plain_dictionary_does(steps: list[tuple[TimerKey, int | None, bool]]) -> None:
    timers: Timers[TimerKey] = Timers()
    model: dict[TimerKey, int] = {}
    for now_ms, (key, deadline_ms, fires) in enumerate(steps):
        if deadline_ms is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.schedule(key, now_ms + deadline_ms)
            model[key] = now_ms + deadline_ms
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        if fires:
            expected = {each for each, time_ms in model.items() if time_ms <= now_ms}
            assert set(due(timers, now_ms)) == expected
            for each in expected:
                del model[each]


def test_what_a_step_changed_is_restored() -> None:
    timers: RestorableTimers[TimerKey] = RestorableTimers()
    timers.schedule(A, 100)
    timers.schedule(B, 50)
    timers.begin_step()
    assert timers.pop_due(60) == B
    timers.schedule(A, 900)
    timers.schedule(C, 70)
    former = timers.changed
    timers.begin_step()
    timers.restore(former, 80)
    assert due(timers, 79) == []
    assert due(timers, 80) == [B], "what was due fires again, not before the given time"
    assert due(timers, 1_000) == [A], "C had no deadline before"


def test_a_postponed_key_is_due_at_its_later_time() -> None:
    timers: Timers[TimerKey] = Timers()
    timers.schedule(A, 10)
    assert not timers.postpone(A, 9), "that is earlier"
    assert not timers.postpone(B, 20), "it has no deadline"
    assert timers.postpone(A, 10) and timers.postpone(A, 40)
    assert timers.deadline_ms(A) == 40
    assert due(timers, 39) == []
    assert due(timers, 40) == [A]


def test_many_postponed_keys_are_corrected_a_few_at_a_time() -> None:
    """One call would hold the event loop for as long as all of them take."""
    timers: Timers[int] = Timers()
    for key in range(100):
        timers.schedule(key, key)
        timers.postpone(key, 1_000 + key)
    asked = 0
    while (next_ms := timers.next_deadline_ms()) is not None and next_ms < 1_000:
        assert next_ms == (asked + 1) * SETTLED_AT_ONCE
        asked += 1
    assert asked == 100 // SETTLED_AT_ONCE and next_ms == 1_000
    timers.postpone(0, 5_000)
    assert [timers.pop_due(1_001), timers.pop_due(1_001)] == [1, None]
