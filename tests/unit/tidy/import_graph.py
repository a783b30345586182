"""Which module imports which, and the cycles among them.

Every import counts alike: at the top of a module, inside a function (lazy) and under `if TYPE_CHECKING`. A module that
is imported by a string at run time (`importlib`) does not count. That a module imports its own package counts only
if it says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.unit.tidy.sources import module_name, product, tree_of

Graph = dict[str, frozenset[str]]
"""The modules that each module imports, by name."""


def import_graph(trees: Mapping[Path, ast.Module], *, types: bool = True) -> Graph:
    """The imports among the given modules; those of anything else are left out. Without `types`, so are those that
    only a type checker sees."""
    modules = {module_name(path) for path in trees}
    return {module_name(path): frozenset(_imports(path, tree, modules, types)) for path, tree in trees.items()}


@cache
def product_graph() -> Graph:
    """The imports among the modules of the product."""
    return import_graph({path: tree_of(path) for path in product()})


def _imports(path: Path, tree: ast.Module, modules: set[str], types: bool) -> Iterable[str]:
    here = module_name(path)
    package = here.split(".") if path.name == "__init__.py" else here.split(".")[:-1]
    for node in imports_in(tree, types=types):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
        yield from (name for name in names if name in modules and name != here)


def imports_in(tree: ast.Module, *, types: bool = True) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module, at the top and inside functions; without `types` not those in `if TYPE_CHECKING`. They
    are statements, so that no expression is looked at.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
            continue
        if (
            not types
            and isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            continue
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                waiting.extend(inner)


def reachable(graph: Graph, roots: Iterable[str]) -> set[str]:
    """The modules that are imported when the roots are, the roots among them."""
    found: set[str] = set()
    waiting = [root for root in roots if root in graph]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(graph[module])
    return found


def cycles(graph: Graph) -> list[list[str]]:
    """The sets of more than one module that reach one another, largest first (Tarjan's algorithm as a loop)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found: list[list[str]] = []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            module, imports = work[-1]
            for imported in imports:
                if imported not in index:
                    index[imported] = low[imported] = len(index)
                    path.append(imported)
                    on_path.add(imported)
                    work.append((imported, iter(sorted(graph[imported]))))
                    break
                if imported in on_path:
                    low[module] = min(low[module], index[imported])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == index[module]:
                    at = path.index(module)
                    component = sorted(path[at:])
                    del path[at:]
                    on_path -= set(component)
                    if len(component) > 1:
                        found.append(component)
    return sorted(found, key=lambda each: (-len(each), each))
