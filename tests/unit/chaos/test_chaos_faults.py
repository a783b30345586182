"""A seed says which fault strikes in which round of a campaign."""

from __future__ import annotations

from collections import Counter

from tests.chaos.faults import Fault, rounds


def test_all_faults_are_there_mixed_and_the_same_for_the_same_seed() -> None:
    drawn = list(rounds(kills=5, terms=7, seed=1))
    assert Counter(each.fault for each in drawn) == {Fault.KILL: 5, Fault.TERM: 7}
    assert [each.number for each in drawn] == list(range(1, 13))
    assert drawn == list(rounds(kills=5, terms=7, seed=1)) != list(rounds(kills=5, terms=7, seed=2))
    assert len({each.fault for each in drawn[:5]}) == 2, "not one kind after the other"
