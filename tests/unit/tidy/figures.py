"""How large the house is: `python -m tests.unit.tidy.figures` prints the lines of the product and of its tests, and the
lines, modules, floors and circles of `broker/apis/`, the room through which every API comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.unit.tidy.import_graph import Graph, cycles, import_graph
from tests.unit.tidy.sources import module_name, product, sources, text_of, tree_of

APIS: Final = Path("broker/apis")


def modules_of(folder: Path) -> tuple[Path, ...]:
    return tuple(path for path in sources() if path.is_relative_to(folder))


def lines_of(paths: Iterable[Path]) -> int:
    return sum(len(text_of(path).splitlines()) for path in paths)


def graph_of(folder: Path, *, types: bool) -> Graph:
    """The imports among the modules of a folder, without its packages."""
    trees = {path: tree_of(path) for path in modules_of(folder)}
    graph = import_graph(trees, types=types)
    inside = {module_name(path) for path in trees if path.name != "__init__.py"}
    return {name: graph[name] & inside - {name} for name in inside}


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


def figures() -> dict[str, int]:
    """The figures by what they count, as they are printed."""
    apis = modules_of(APIS)
    return {
        "lines of the product": lines_of(product()),
        "lines of the tests": lines_of(modules_of(Path("tests"))),
        "broker/apis: lines": lines_of(apis),
        "broker/apis: modules": len(apis),
        "broker/apis: floors": max(floors(graph_of(APIS, types=False)).values()),
        "broker/apis: circles": len(cycles(graph_of(APIS, types=True))),
    }


if __name__ == "__main__":
    for what, figure in figures().items():
        print(f"{what:<24} {figure:>8,}")
