"""`broker/apis/` is a low house: few floors of imports, and no circle among them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.unit.tidy.import_graph import Graph, import_graph
from tests.unit.tidy.sources import sources, tree_of

PACKAGE: Final = "moldau.broker.apis"
FLOORS_MAX: Final = 6


def floors(graph: Graph) -> dict[str, int]:
    """The floor of each module: one above the highest that it imports. `AssertionError` for a circle."""
    found: dict[str, int] = {}

    def climb(name: str, above: tuple[str, ...]) -> int:
        assert name not in above, f"a circle of imports: {' → '.join((*above, name))}"
        if name not in found:
            found[name] = 1 + max((climb(each, (*above, name)) for each in graph[name]), default=0)
        return found[name]

    for name in graph:
        climb(name, ())
    return found


def of_package(*, types: bool) -> Graph:
    graph = import_graph({path: tree_of(path) for path in sources()}, types=types)
    inside = {name for name in graph if name.startswith(f"{PACKAGE}.")}
    return {name: graph[name] & inside - {name} for name in inside}


def test_an_api_stands_on_few_floors() -> None:
    graph = of_package(types=False)
    assert len(graph) > 70
    highest = {name: floor for name, floor in floors(graph).items() if floor > FLOORS_MAX}
    assert not highest


def test_no_imports_run_in_a_circle_not_even_of_types() -> None:
    assert floors(of_package(types=True))


def test_a_planted_circle_is_found() -> None:
    with pytest.raises(AssertionError, match="b → c → b"):
        floors({"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b")})
