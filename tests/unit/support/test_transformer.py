"""What is told of effects that are not those of the source, once each and in its order."""

from __future__ import annotations

import pytest

from tests.support.transactions.transformer import differences


def test_each_record_has_its_effect_once() -> None:
    assert differences(["a", "b"], ["a@x.1", "b@x.3"]) == []


@pytest.mark.parametrize("target", [["a@1"], ["a@1", "a@2", "b@2"], ["b@1", "a@2"], ["a@1", "b@2", "c@3"], []])
def test_lost_doubled_swapped_and_invented_effects_are_told(target: list[str]) -> None:
    assert differences(["a", "b"], target)
