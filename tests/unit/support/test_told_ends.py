"""An end that goes back is flagged, unless a deposed leader tells it, or it was not told yet when it was asked for."""

from __future__ import annotations

from tests.support.told_ends import ToldEnds

KEY = ("t", 0)


def complaints_after(*told: tuple[int, int]) -> list[str]:
    """(leader epoch, end), each asked for after the one before was told."""
    complaints: list[str] = []
    ends = ToldEnds(complaints)
    for epoch, end_offset in told:
        ends.told(KEY, epoch, end_offset, ends.before(KEY))
    return complaints


def test_ends_that_rise_are_as_they_should_be() -> None:
    assert complaints_after((1, 5), (1, 5), (2, 7)) == []


def test_a_later_leader_tells_no_earlier_end() -> None:
    assert len(complaints_after((1, 5), (2, 4))) == 1


def test_a_leader_that_was_deposed_may_tell_what_was_true_in_its_epoch() -> None:
    assert complaints_after((1, 5), (2, 7), (1, 6)) == []
    assert len(complaints_after((1, 5), (2, 7), (1, 4))) == 1


def test_answers_may_overtake_one_another() -> None:
    complaints: list[str] = []
    ends = ToldEnds(complaints)
    before = ends.before(KEY)
    ends.told(KEY, 1, 5, ends.before(KEY))
    ends.told(KEY, 1, 4, before)
    assert complaints == []
