"""A node is composed in true order: a part is complete when it is made, and gets only parts that were made before."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[4]
ROOM: Final = ROOT / "broker" / "node"
LINES_MAX: Final = 300
LOGGER: Final = "log"
"""A logger of the standard library is not a part."""
MUTATORS: Final = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})


# Parts are complete when they are made


def late_assignments(tree: ast.Module) -> Iterator[str]:
    """The assignments into a field of another object, the changes of a field of another object, and calls of attach."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (ast.unparse(each) for target in targets for each in _fields(target) if not _is_own(each))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            field = node.func.value
            changes = node.func.attr in MUTATORS and isinstance(field, ast.Attribute) and not _is_own(field)
            if changes or node.func.attr == "attach":
                yield ast.unparse(node.func)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            yield ast.unparse(node)


def _fields(target: ast.expr) -> Iterator[ast.Attribute]:
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    if isinstance(target, ast.Attribute):
        yield target
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _fields(each)


def _is_own(field: ast.Attribute) -> bool:
    return isinstance(field.value, ast.Name) and field.value.id in ("self", LOGGER)


# A part gets only parts that were made before it


class Order:
    """Follows the composition of a class in the order in which it runs."""

    def __init__(self, composed: ast.ClassDef) -> None:
        self._methods = {each.name: each for each in composed.body if isinstance(each, ast.FunctionDef)}
        self._made: set[str] = set()
        self.late: list[str] = []
        """The parts that are read before they are made, also by a lambda or a method that is passed to another part."""

    def follow(self, method: str) -> None:
        for statement in self._methods[method].body:
            self._follow_statement(statement)
        self.late += late_locals(self._methods[method])

    def _follow_statement(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                if isinstance(node.ctx, ast.Store):
                    continue
                if node.attr in self._methods:
                    self.follow(node.attr)
                elif node.attr not in self._made:
                    self.late.append(f"self.{node.attr}, line {node.lineno}")
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._made.add(node.attr)


def late_locals(function: ast.FunctionDef) -> list[str]:
    """The local names that a lambda, or a function in the function, reads although they are assigned after it."""
    late: list[str] = []
    for statement in function.body:
        for inner in ast.walk(statement):
            if not isinstance(inner, (ast.Lambda, ast.FunctionDef)):
                continue
            own = {each.arg for each in ast.walk(inner) if isinstance(each, ast.arg)}
            read = {each.id for each in ast.walk(inner) if isinstance(each, ast.Name)} - own
            late += sorted(read & _assigned_from(function, statement))
    return late


def _assigned_from(function: ast.FunctionDef, first: ast.stmt) -> set[str]:
    """The names that this statement of the function, or a later one, assigns for the first time."""
    names: set[str] = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    position = function.body.index(first)
    for statement in function.body[:position]:
        names |= _stored(statement)
    return {name for statement in function.body[position:] for name in _stored(statement)} - names


def _stored(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {each for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return {each.id for each in names if isinstance(each.ctx, ast.Store)}


def late_reads(source: str, name: str) -> list[str]:
    """The reads of parts before they are made, in the constructor of a class and in what it calls or passes on."""
    composed = next(each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == name)
    order = Order(composed)
    order.follow("__init__")
    return order.late


# The node


def test_the_life_of_a_node_is_read_on_a_few_screens() -> None:
    assert len((ROOM / "node.py").read_text().splitlines()) < LINES_MAX


COMPOSING: Final = (*sorted(ROOM.glob("*.py")), ROOT / "broker/coordinators/composition.py")


@pytest.mark.parametrize("path", COMPOSING, ids=lambda path: path.name)
def test_no_module_assigns_a_field_of_another_part(path: Path) -> None:
    assert list(late_assignments(ast.parse(path.read_text()))) == []


def test_each_part_gets_only_parts_that_were_made_before_it() -> None:
    assert late_reads((ROOM / "composition.py").read_text(), "NodeParts") == []


@pytest.mark.parametrize(
    ("path", "function"),
    [
        ("broker/metadata/raft/opened_quorum.py", "opened_quorum"),
        ("broker/coordinators/composition.py", "__init__"),
    ],
)
def test_a_smaller_composition_passes_nothing_that_is_made_later(path: str, function: str) -> None:
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    found = [each for each in nodes if isinstance(each, ast.FunctionDef) and each.name == function]
    assert found and [late for each in found for late in late_locals(each)] == []


def test_no_part_gets_the_whole_node() -> None:
    names = ("moldau.broker.node.node", "moldau.broker.node.composition")
    paths = (
        each for folder in ("broker", "coordinator", "kraft", "replication") for each in (ROOT / folder).rglob("*")
    )
    found = {str(each.relative_to(ROOT)) for each in paths if each.suffix == ".py" and _imports(each, names)}
    assert found == {"broker/node/main.py", "broker/node/node.py"}


def _imports(path: Path, names: tuple[str, ...]) -> bool:
    text = path.read_text()
    if not any(name in text for name in names):
        return False  # Nearly all modules; parsing them took most of the time of this file.
    return any(isinstance(each, ast.ImportFrom) and each.module in names for each in ast.walk(ast.parse(text)))


# Planted faults are found


@pytest.mark.parametrize(
    "planted",
    [
        "self.cleaner.remote = tiering",
        "node.cleaner.remote: object = tiering",
        "fetchers.remote_state, self.x = state, 1",
        "listener.count += 1",
        "self.admissions[role].listeners.append(listener)",
        "self.settings.watchers.append(self._changed)",
        "listener.routes[0] = route",
        "self.security.attach(self.listeners)",
        "setattr(cleaner, 'remote', tiering)",
    ],
)
def test_a_planted_late_assignment_is_found(planted: str) -> None:
    assert list(late_assignments(ast.parse(planted)))


@pytest.mark.parametrize("sound", ["self.x = y", "x = y", "self.x.append(y)", "self.x[1] = y", "log.propagate = False"])
def test_an_assignment_of_an_own_field_is_sound(sound: str) -> None:
    assert list(late_assignments(ast.parse(sound))) == []


@pytest.mark.parametrize(
    ("body", "late"),
    [
        ("self.a = A(lambda: self.b.x)\n        self.b = B()", True),
        ("self.a = A(self._x)\n        self.b = B()", True),
        ("self.a = A(self.a)", True),
        ("self._compose()\n        self.b = B()", True),
        ("a = A(lambda: b.x)\n        b = B()", True),
        ("self.b = B()\n        self.a = A(lambda: self.b.x, self._x)\n        self._compose()", False),
        ("b = B()\n        self.a = A(lambda: b.x)", False),
    ],
)
def test_a_planted_late_read_is_found(body: str, late: bool) -> None:
    source = f"""
class Parts:
    def __init__(self) -> None:
        {body}

    def _compose(self):
        self.c = C(self.b)

    def _x(self):
        return self.b.x
"""
    assert bool(late_reads(source, "Parts")) is late
