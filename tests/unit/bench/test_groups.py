"""The groups of the bench, as far as can be seen without running one: modules, names of rows, time, order."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest

from bench.front import FRONT_ROWS
from bench.groups import GROUPS, MeasurementGroup, RunForm
from bench.rows import ROWS

MINUTES_MAX = 90
WORD = re.compile(r"[A-Za-z]+")
by_name = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)


@by_name
def test_a_group_is_measured_by_a_function_of_a_bench_and_a_form(group: MeasurementGroup) -> None:
    measure = import_module(group.module).measure
    assert list(inspect.signature(measure, eval_str=False).parameters) == ["bench", "form"]
    assert isinstance(group.form(is_quick=True, rounds=None), RunForm)


@by_name
def test_a_group_names_what_its_rows_are_called(group: MeasurementGroup) -> None:
    """A row whose figure was renamed has a word that no module of its group writes."""
    words = words_of(group.module)
    for row in ROWS:
        if row.group == group.name:
            assert set(WORD.findall(row.name)) <= words, row.name


@by_name
def test_a_group_says_whether_it_shares_the_warmed_brokers(group: MeasurementGroup) -> None:
    uses = re.search(r"\b(warmed_contenders|measure_workloads)\(bench, form", source_of(group.module))
    assert group.shares_brokers == bool(uses)


def test_groups_that_share_brokers_stand_in_two_places() -> None:
    """Those that matter most come first. Each further place costs a warm-up of both brokers."""
    shared = [group.shares_brokers for group in GROUPS]
    assert [one for one, _ in groupby(shared)] == [False, True, False, True, False]


def test_a_run_of_all_groups_takes_at_most_ninety_minutes() -> None:
    assert sum(group.expected_s for group in GROUPS if not group.is_long) <= 60 * MINUTES_MAX


def test_each_row_of_the_chart_is_a_row_of_a_group() -> None:
    assert set(FRONT_ROWS) <= {row.name for row in ROWS}, "or --front would not measure it"


def test_a_renamed_figure_is_seen() -> None:
    words = words_of("bench.throughput")
    assert set(WORD.findall("produce 200 B, one in flight: rate")) <= words
    assert not set(WORD.findall("produce 200 B, one under way: rate")) <= words


@cache
def words_of(module: str) -> frozenset[str]:
    """The words of all texts in a module and the modules of the bench below it, but for docstrings and, in
    `bench.rows`, the rows.
    """
    texts = (part for each in modules_below(module) for node in statements_of(each) for part in parts_of(node))
    return frozenset(word for text in texts for word in WORD.findall(text))


def parts_of(node: ast.AST) -> Iterator[str]:
    """The texts in a statement."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for each in ast.iter_child_nodes(node):
        if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
            yield from parts_of(each)


@cache
def modules_below(module: str) -> frozenset[str]:
    """The module, and what it imports of the bench, directly and not."""
    found, new = set[str](), {module}
    while new:
        found |= new
        new = {each for name in new for each in imports_of(name)} - found
    return frozenset(found)


def imports_of(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source_of(module))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "bench" else set()
            found |= names or {node.module}
    return {name for name in found if name.startswith("bench.")}


def statements_of(module: str) -> list[ast.stmt]:
    body = ast.parse(source_of(module)).body
    kept = (node for node in body if not isinstance(node, ast.Expr))
    return [node for node in kept if not (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "ROWS")]


@cache
def source_of(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text()
