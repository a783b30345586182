"""Which tests, simulations and planted bugs hold a module: `python -m docs.module_map broker/apis storage/log/log.py`.

It tells of each module below the given paths, or of all. Everything is read from the sources; nothing is run.

| what it tells | how it is found |
|---|---|
| tests | at the module's own path under `tests/unit/`; else the tests that import it, else the module that does |
| transcripts | the machine that a transcript drives, and what it imports in its own package |
| simulation | the suites of `tests/simulation/` whose imports at run time reach the module (`cluster`: whole nodes) |
| planted bugs | the numbers in `tests/mutants/` of the bugs whose text stands in the module |

The declarations in `protocol/messages/` are left out: `tests/unit/protocol/` holds every one of them.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from moldau.broker.apis.catalogue import CATALOGUE
from tests.mutants.catalogue import MUTANTS
from tests.unit.tidy.import_graph import Graph, import_graph, reachable
from tests.unit.tidy.sources import module_name, path_of, product, sources, tree_of

BY_NAME: Final = {
    "moldau.broker.cli.command": ("moldau.broker.cli.",),
    "moldau.broker.apis.catalogue": tuple(f"moldau.broker.apis.{module}" for module, _ in CATALOGUE.values()),
}
"""What a module imports by a name that it computes."""
TRANSCRIPTS: Final = {
    "coordinators": ("tests.transcripts.test_coordinators", "moldau.coordinator."),
    "raft": ("tests.support.raft_scribe", "moldau.kraft.raft."),
    "controller": ("tests.support.controller_scribe", "moldau.kraft.controller."),
}
"""By machine: what drives it in transcripts, and the package that the machine is."""
SUITES: Final = {
    "cluster": ("",),
    "controller": ("moldau.kraft.controller.", "moldau.kraft.image."),
    "groups": ("moldau.coordinator.",),
    "metadata": ("moldau.broker.metadata.", "moldau.kraft."),
    "quotas": ("moldau.security.quotas.", "moldau.broker.network.client_quotas"),
    "raft": ("moldau.kraft.raft.",),
    "replicas": ("moldau.replication.", "moldau.storage."),
}
"""Folders of `tests/simulation/`, and what each is about; `cluster` runs whole nodes."""
TESTS_SHOWN_MAX: Final = 2
APIS: Final = Path("broker/apis")


class Held(NamedTuple):
    """One row."""

    path: Path
    summary: str
    unit_tests: list[str]
    transcripts: list[str]
    suites: list[str]
    bugs: list[int]

    @property
    def is_held(self) -> bool:
        return bool(self.unit_tests or self.transcripts or self.suites or self.bugs)


def rows() -> list[Held]:
    """Every module of the product but declarations of messages and empty packages, folder by folder."""
    trees = {path: tree_of(path) for path in sources()}
    graph = _with_names(import_graph(trees, types=False))
    importers = _importers(graph)
    machines = {
        name: {each for each in reachable(graph, [scribe]) if each.startswith(package)}
        for name, (scribe, package) in TRANSCRIPTS.items()
    }
    suites = {
        name: {each for each in _run_by(graph, name) if each.startswith(packages)} for name, packages in SUITES.items()
    }
    bugs = defaultdict(list)
    for mutant in MUTANTS:
        bugs[mutant.path].append(mutant.number)
    found = []
    for path in sorted(product(), key=lambda each: (each.parent, each.name)):
        name = module_name(path)
        if path.name != "__init__.py" and path.parts[:2] != ("protocol", "messages"):
            found.append(
                Held(
                    path,
                    _summary(trees[path]),
                    _unit_tests(path, importers),
                    [each for each, modules in machines.items() if name in modules],
                    [each for each, modules in suites.items() if name in modules],
                    bugs[str(path)],
                )
            )
    return found


def _run_by(graph: Graph, suite: str) -> set[str]:
    return reachable(graph, [each for each in graph if each.startswith(f"tests.simulation.{suite}.")])


def _with_names(graph: Graph) -> Graph:
    added = {
        name: graph[name] | {each for each in graph if each.startswith(prefixes)}
        for name, prefixes in BY_NAME.items()
        if name in graph
    }
    return graph | added


def _importers(graph: Graph) -> dict[str, list[str]]:
    importers = defaultdict(list)
    for module in sorted(graph):
        for imported in graph[module]:
            importers[imported].append(module)
    return importers


def _unit_tests(path: Path, importers: dict[str, list[str]]) -> list[str]:
    if _has_its_own(path):
        return ["its own"]
    named = importers.get(module_name(path), [])
    tests = [each for each in named if each.startswith("tests.") and ".test_" in each]
    if not tests and path.parent.parent == APIS:
        named = importers.get(f"moldau.protocol.messages.{path.stem}", [])
        tests = [each for each in named if each.startswith("tests.unit.broker.") and ".test_" in each]
    if not tests:
        through = [path_of(each) for each in named]
        shipped = _tracked_modules().intersection(product())
        return [f"through {each}" for each in through if each in shipped and _has_its_own(each)][:1]
    shown = [each.removeprefix("tests.").removeprefix("unit.") for each in tests[:TESTS_SHOWN_MAX]]
    return [*shown, f"{len(tests) - TESTS_SHOWN_MAX} more"] if len(tests) > TESTS_SHOWN_MAX else shown


def _has_its_own(path: Path) -> bool:
    return Path("tests", "unit", path.parent, f"test_{path.name}") in _tracked_modules()


@cache
def _tracked_modules() -> frozenset[Path]:
    return frozenset(sources())


def _summary(tree: ast.Module) -> str:
    """The first sentence of the docstring."""
    text = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]


def told(each: Held) -> str:
    """What holds a module, in lines."""
    facts = {
        "tests": each.unit_tests,
        "transcripts": each.transcripts,
        "simulation": each.suites,
        "planted bugs": list(map(str, each.bugs)),
    }
    lines = [f"{each.path}: {each.summary}"]
    lines += [f"    {name:<12}  {', '.join(found)}" for name, found in facts.items() if found]
    return "\n".join(lines if each.is_held else [*lines, "    held by nothing"])


def main() -> None:
    """Print what holds the modules below the given paths."""
    parser = argparse.ArgumentParser(prog="python -m docs.module_map", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", type=Path, help="a module or a folder of the product")
    paths = parser.parse_args().paths or [Path()]
    for each in rows():
        if any(each.path.is_relative_to(path) for path in paths):
            sys.stdout.write(f"{told(each)}\n")


if __name__ == "__main__":
    main()
