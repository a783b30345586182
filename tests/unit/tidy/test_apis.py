"""`broker/apis/` is a low house that does not grow by itself: few floors of imports, and no circle among them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.unit.tidy.figures import APIS, figures, floors, graph_of

BARS: Final = {
    "broker/apis: lines": 10_300,
    "broker/apis: modules": 82,
    "broker/apis: floors": 6,
    "broker/apis: circles": 0,
}
"""What the room may have at most. A new API is a reason to raise the lines and the modules, by what it needs."""


def test_the_room_of_the_apis_keeps_its_bars() -> None:
    counted = figures()
    print(counted)
    assert counted["broker/apis: modules"] > 70
    assert not {what: counted[what] for what, most in BARS.items() if counted[what] > most}


def test_no_imports_run_in_a_circle_not_even_of_types() -> None:
    assert floors(graph_of(APIS, types=True))


def test_a_planted_circle_is_found() -> None:
    with pytest.raises(AssertionError, match="b → c → b"):
        floors({"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b")})


def test_a_floor_is_one_above_what_is_imported() -> None:
    assert floors({"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()}) == {"c": 1, "b": 2, "a": 3}
