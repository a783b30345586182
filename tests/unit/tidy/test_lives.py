"""`docs/architecture.md` tells six requests from socket to reply, and a cleaning, each in few files that lead on.

A file is reached when it and one above it in the table import one another in either direction (for a type and inside a
function too), or when the row names what is handed over: a function, class, method or attribute that one of the two
files declares and the other uses.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.unit.tidy.import_graph import Graph, product_graph
from tests.unit.tidy.sources import ROOT, module_name, text_of, tree_of

PAGE: Final = Path("docs/architecture.md")
FILES_MAX: Final = {
    "A long poll": 8,
    "A produce": 7,
    "A join": 10,
    "An election": 9,
    "A replicated record": 8,
    "A transaction's end": 9,
    "A cleaning of a compacted log": 6,
}
ROW: Final = re.compile(r"\| `([\w/]+\.py)` \| (?:`(\w+)`)? ?\|")


class Station(NamedTuple):
    """One row: a file, and the name by which it is reached if that is no import."""

    path: Path
    handed_over: str | None


def lives(page: str) -> dict[str, list[Station]]:
    """The tables under headings of the third level, by heading."""
    told: dict[str, list[Station]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.removeprefix("### ")
        elif row := ROW.match(line):
            told.setdefault(heading, []).append(Station(Path(row[1]), row[2]))
    return told


def declared(tree: ast.Module) -> set[str]:
    """The names of functions, classes and methods, and of attributes that are assigned or annotated."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def used(tree: ast.Module) -> set[str]:
    """The names that are read, called or annotated with."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return names | {node.attr for node in attributes}


def is_reached(station: Station, above: list[Station], graph: Graph) -> bool:
    here = module_name(station.path)
    for other in above:
        there = module_name(other.path)
        if there in graph[here] or here in graph[there]:
            return True
        if name := station.handed_over:
            trees = tree_of(station.path), tree_of(other.path)
            if any(name in declared(one) and name in used(another) for one, another in (trees, trees[::-1])):
                return True
    return False


@pytest.mark.parametrize("life", FILES_MAX)
def test_a_life_is_read_in_few_files_that_lead_on(life: str) -> None:
    stations = lives(text_of(PAGE))[life]
    print(f"{life}: {len(stations)} files, at most {FILES_MAX[life]}: {', '.join(str(each.path) for each in stations)}")
    assert len({each.path for each in stations}) == len(stations) <= FILES_MAX[life]
    assert not [each.path for each in stations if not (ROOT / each.path).is_file()], "files that do not exist"
    graph = product_graph()
    lost = [str(each.path) for at, each in enumerate(stations) if at and not is_reached(each, stations[:at], graph)]
    assert not lost, "neither imported nor handed over by name from a file above"


def test_every_life_is_told() -> None:
    assert lives(text_of(PAGE)).keys() == FILES_MAX.keys()


def test_a_row_is_read() -> None:
    page = (
        "### A walk\n| file | handed over by | what |\n|---|---|---|\n| `a/b.py` | | x |\n| `a/c.py` | `Port` | y |\n"
    )
    assert lives(page) == {"A walk": [Station(Path("a/b.py"), None), Station(Path("a/c.py"), "Port")]}
