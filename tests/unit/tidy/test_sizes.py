"""Sizes that a reader can hold, names that mean something, nothing left unfinished."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.unit.tidy import exceptions
from tests.unit.tidy.exceptions import EXCEPTIONS_MAX
from tests.unit.tidy.sources import (
    PACKAGES,
    REWRITE,
    drop_lines,
    module_name,
    nodes_of,
    product,
    sources,
    text_of,
)

MODULE_LINES_MAX = 600
SCRIPT_LINES_MAX = 600
"""Of a module that is neither product nor test: benchmarks and what computes documents."""
TEST_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
METHODS_MAX = 30
FOLDER_MODULES_MAX = 25
BEGINS_WITH_DOCSTRING = re.compile(r'(?:#.*\n)*r?"""\s*[^\s"]')
NAMELESS = re.compile(r"(^|_)(util|utils|helper|helpers|common|misc|manager|managers|impl)(_|$)")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|NotImplemented" r"Error")
EXCEPTIONS = Path(__file__).with_name("exceptions.py")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_a_module_is_read_in_one_sitting() -> None:
    shipped = set(product())
    found = []
    for path in sources():
        is_test = path.parts[0] == "tests"
        lines_max = TEST_LINES_MAX if is_test else SCRIPT_LINES_MAX
        if path not in shipped and text_of(path).count("\n") > lines_max:
            found.append(f"{path}: more than {lines_max} lines")
        if path.name != "conftest.py" and text_of(path) and not BEGINS_WITH_DOCSTRING.match(text_of(path)):
            found.append(f"{path}: a module says in its docstring what it is")
        for node in () if is_test else nodes_of(path):
            if isinstance(node, FUNCTIONS) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno}: {node.name} is longer than a screen")
    assert not found, "\n".join(found)


def test_product_code_is_finished_and_named() -> None:
    found = [f"{path}: the name says nothing" for path in product() if NAMELESS.search(path.stem)]
    for path in product():
        if UNFINISHED.search(text_of(path)):
            lines = enumerate(text_of(path).splitlines(), 1)
            found += [f"{path}:{number}: {line.strip()}" for number, line in lines if UNFINISHED.search(line)]
    assert not found, "\n".join(found)


def judge(kind: str, found: Mapping[str, object], excused: Mapping[str, str]) -> None:
    """Fails if something offends without an excuse, if an excuse is not needed, or if too many are kept."""
    print(f"{kind} above the bound: {len(found)}")
    for name, measure in sorted(found.items()):
        print(f"  {measure} {name}: {excused.get(name, 'no exception')}")
    stale = excused.keys() - found.keys()
    if REWRITE:
        drop_lines(EXCEPTIONS, stale)
        stale = set()
    assert not found.keys() - excused.keys(), f"{kind} above the bound: {_named(found, excused)}"
    assert not stale, f"not needed any more, MOLDAU_REWRITE=1 removes them: {sorted(stale)}"
    assert len(excused) <= EXCEPTIONS_MAX[kind], f"too many exceptions among {kind}: {sorted(excused)}"


def _named(found: Mapping[str, object], excused: Collection[str]) -> str:
    return ", ".join(f"{name} ({measure})" for name, measure in sorted(found.items()) if name not in excused)


def test_classes_have_at_most_thirty_methods() -> None:
    found = {}
    for path in product():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                count = len({each.name for each in node.body if isinstance(each, FUNCTIONS)})
                if count > METHODS_MAX:
                    found[f"{module_name(path)}.{node.name}"] = count
    judge("classes", found, exceptions.CLASSES)


def test_modules_have_at_most_six_hundred_lines() -> None:
    lines = {str(path): text_of(path).count("\n") for path in product()}
    judge("modules", {name: count for name, count in lines.items() if count > MODULE_LINES_MAX}, exceptions.MODULES)


def test_folders_have_at_most_twenty_five_modules() -> None:
    counts = Counter(str(path.parent) for path in product() if path.name != "__init__.py")
    judge("folders", {name: each for name, each in counts.items() if each > FOLDER_MODULES_MAX}, exceptions.FOLDERS)


def test_an_exception_of_every_kind_is_caught_only_at_the_edge() -> None:
    allowed = {
        "broker/exporter/exporter.py",  # A sample that fails must not stop the node.
        "broker/console/decoding/schemas.py",  # As in tables/values/decoders.py.
        "broker/http/server.py",  # A resource that fails is answered with 500.
        "broker/metrics/otlp.py",  # The libraries of OpenTelemetry document no errors, and must not stop the broker.
        "broker/network/connection.py",
        "broker/apis/forwarding.py",  # A request that came another way has the edge that a connection has.
        "broker/apis/coordinator.py",  # An answer that does not become a response must not cost the answers of others.
        "broker/apis/cluster/envelope.py",  # A request inside has the edge that a connection has.
        "broker/runtime/tasks.py",
        "broker/runtime/worker_process.py",
        "testing/simulation/connection.py",  # Whatever a protocol raises is lost with its connection, as in asyncio.
        "testing/simulation/world.py",  # A simulated process or thread hands over what its work raises.
        "tables/values/decoders.py",  # The libraries of Avro and Protobuf document no errors for damaged bytes.
    }
    catching = set()
    for path in product():
        for node in nodes_of(path):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception":
                catching.add(str(path))
    assert catching <= allowed


def test_the_readme_maps_the_packages_that_are_there() -> None:
    text = text_of(Path("README.md"))
    for package in PACKAGES:
        assert f"`{package}/`" in text
