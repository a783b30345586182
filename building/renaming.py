"""Rewrites a module so that it works one package deeper: `broker.cli` becomes `moldau.broker.cli`.

| in the source                                             | in the wheel                                        |
|-----------------------------------------------------------|-----------------------------------------------------|
| `from storage.log import Log`                             | `from moldau.storage.log import Log`                |
| `import storage.log as log`                               | `import moldau.storage.log as log`                  |
| `import storage.log`                                      | `import moldau.storage.log; from moldau import storage` |
| `"broker.cli.serve"`, where that is a module              | `"moldau.broker.cli.serve"`                         |
| `f"protocol.messages.{name}"`, where that is a package    | `f"moldau.protocol.messages.{name}"`                |
| `python -m broker.cli` inside a string                    | `python -m moldau.broker.cli`                       |
| `import_module(prefix + name)`, and other unclear names   | `CannotRename`                                      |

Only the names change: every line keeps its number. Logger names, settings (`broker.rack`) and plain words stay, because
no module has those names. A module that builds names from `__package__` or `__name__` needs no rewriting.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

IMPORTING_CALLS: Final = frozenset({"import_module", "__import__", "find_spec", "run_module"})
"""Functions whose first argument is the name of a module."""
OWN_NAMES: Final = frozenset({"__package__", "__name__"})
_DOTTED: Final = re.compile(r"\w+(\.\w+)*\.?")


class CannotRename(Exception):
    """A line that may name a module in a way that this rewriting does not understand; the text says where."""


@dataclass(frozen=True, slots=True)
class Renaming:
    """The modules of a tree by their dotted names, packages among them, and the package into which they are moved."""

    modules: Set[str]
    target: str

    @property
    def packages(self) -> frozenset[str]:
        """The top-level packages."""
        return frozenset(name.partition(".")[0] for name in self.modules)

    def applied_to(self, text: str, name: str) -> str:
        """The text of a module as it is inside the target. Raises `CannotRename`; `name` says of which module."""
        data = text.encode()
        starts = [0]
        for line in data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for edit in sorted(_Reading(self, data, starts, name).edits(ast.parse(text)), reverse=True):
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        return data.decode()


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement of the bytes [start, end) of a source by a text."""

    start: int
    end: int
    text: str


class _Reading:
    """Reads one module; every method gives the edits of one kind of syntax node."""

    def __init__(self, renaming: Renaming, data: bytes, starts: list[int], name: str) -> None:
        self._modules = renaming.modules
        self._packages = renaming.packages
        self._target = renaming.target
        self._data = data
        self._starts = starts
        self._name = name

    def edits(self, tree: ast.Module) -> Iterator[Edit]:
        inside_f_strings = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from self._import(node)
            elif isinstance(node, ast.ImportFrom):
                yield from self._import_from(node)
            elif isinstance(node, ast.Call):
                self._refuse_unclear_call(node)
            elif isinstance(node, ast.JoinedStr):
                yield from self._string(node, self._first_literal(node), is_whole=False)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside_f_strings:
                yield from self._string(node, node.value, is_whole=True)

    def _import(self, node: ast.Import) -> Iterator[Edit]:
        if not any(self._is_ours(alias.name) for alias in node.names):
            return
        statements = []
        for alias in node.names:
            top, _, below = alias.name.partition(".")
            if not self._is_ours(alias.name):
                statements.append(f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else ""))
            elif alias.asname:
                statements.append(f"import {self._target}.{alias.name} as {alias.asname}")
            else:
                statements += [f"import {self._target}.{alias.name}"] if below else []
                statements.append(f"from {self._target} import {top}")
        yield Edit(*self._span(node), "; ".join(statements))

    def _import_from(self, node: ast.ImportFrom) -> Iterator[Edit]:
        if node.level == 0 and node.module is not None and self._is_ours(node.module):
            start, end = self._span(node)
            found = re.match(rb"from\s+", self._data[start:end])
            assert found is not None
            yield self._prefixed(start + found.end())

    def _string(self, node: ast.expr, value: str, *, is_whole: bool) -> Iterator[Edit]:
        """The edits of a string that is the name of a module, or that contains `-m` and a module."""
        start, end = self._span(node)
        source = self._data[start:end].decode()
        for found in re.finditer(r"(?<![\w-])-m (\w+(?:\.\w+)*)", source):
            if found[1] in self._modules:
                yield self._prefixed(start + len(source[: found.start(1)].encode()))
        if not self._names_module(node, value, is_whole=is_whole):
            return
        if source.count(value) != 1:
            raise CannotRename(f"{self._where(node)}: the name of a module is written in pieces")
        yield self._prefixed(start + len(source[: source.index(value)].encode()))

    def _names_module(self, node: ast.expr, value: str, *, is_whole: bool) -> bool:
        top, dot, _ = value.partition(".")
        if not dot or top not in self._packages or not _DOTTED.match(value):
            return False
        if is_whole and not value.endswith("."):
            return value in self._modules
        known, _, rest = value.rpartition(".")
        if not is_whole and known == top:
            raise CannotRename(f"{self._where(node)}: begins with {top}., which may or may not be the name of a module")
        return known in self._modules and not rest and not (is_whole and known == top)

    def _refuse_unclear_call(self, node: ast.Call) -> None:
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if function not in IMPORTING_CALLS or not node.args:
            return
        argument = node.args[0]
        if isinstance(argument, ast.JoinedStr):
            first = argument.values[0]
            is_clear = isinstance(first, ast.Constant) or (
                isinstance(first, ast.FormattedValue) and getattr(first.value, "id", None) in OWN_NAMES
            )
        else:
            # A name or an attribute holds a string that stands elsewhere, where it is rewritten.
            is_clear = isinstance(argument, ast.Constant | ast.Name | ast.Attribute | ast.Subscript)
        if not is_clear:
            raise CannotRename(
                f"{self._where(node)}: {function} of a name that is put together; write an f-string that begins with"
                " the package, or with __package__"
            )

    def _first_literal(self, node: ast.JoinedStr) -> str:
        first = node.values[0] if node.values else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""

    def _is_ours(self, module: str) -> bool:
        return module.partition(".")[0] in self._packages

    def _prefixed(self, position: int) -> Edit:
        return Edit(position, position, f"{self._target}.")

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _where(self, node: ast.expr) -> str:
        return f"{self._name}, line {node.lineno}"
