"""A name in backticks, in a page or in the prose of a module, is a name that the code declares or uses.

| prose of | a name must occur in the code of |
|---|---|
| a module | its own package, or a package below it (`BELOW`) |
| a page | the product, its tests, `bench/` or `building/` |

A path must be tracked, and a dotted name of a module must exist in that module.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from building.wheel_tree import LINKED
from tests.unit.tidy.sources import PACKAGES, ROOT, product, sources, text_of, tracked, tree_of
from tests.unit.tidy.test_words import documents

BELOW: Final = {
    "protocol": (),
    "security": ("protocol",),
    "storage": ("protocol",),
    "replication": ("storage", "protocol"),
    "kraft": ("security", "storage", "protocol"),
    "coordinator": ("protocol",),
    "tables": ("storage", "protocol"),
    "spark_jobs": ("tables", "storage", "protocol"),
    "lake": ("tables", "storage", "protocol"),
    "backup": ("tables", "kraft", "security", "storage", "protocol"),
    "pyspark_moldau": ("spark_jobs",),
    "testing": ("broker",),
    "broker": PACKAGES,
}
"""The packages below each package, as the import contracts have them. A broker sees all of them."""
OF_KAFKA: Final = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__del__",
    }
)
"""Names that Apache Kafka or Python defines."""
PAGES_ABOUT_OTHERS: Final = frozenset({Path("docs/conformance.md")})
"""Pages that name the tests of other projects: only their paths are checked."""
EXAMPLES: Final = {
    Path("CONTRIBUTING.md"): {"FooRequest", "FooResponse", "foo.py"},
    Path("docs/containers.md"): {"ALLOW_ANONYMOUS_LOGIN", "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS"},
    Path("docs/decisions/0007-metrics.md"): {"prometheus_client"},
    Path("docs/decisions/0009-one-package-in-a-wheel.md"): {"hot_path__mypyc"},
    Path("docs/decisions/0020-spark-jobs-that-write.md"): {"approx_top_k"},
    Path("docs/performance.md"): {"latest.json"},
}
"""Names of what a reader will write, of what a build makes, and of libraries; a path is listed by its last part."""
LEAST_LENGTH: Final = 4
IN_BACKTICKS: Final = re.compile(r"`([^`\n]+)`")
WORD: Final = re.compile(r"[A-Za-z_]\w*")
NAME: Final = re.compile(r"([A-Za-z_]\w*)(?:\(\))?")
DOTTED: Final = re.compile(rf"(?:(?:moldau\.)?(?:{'|'.join(PACKAGES)})|bench|tests|building)(?:\.\w+)+")
SETTINGS: Final = frozenset({"broker.id", "broker.rack", "kraft.version", "moldau.broker.silence.fence.ms"})
"""Settings and features that look like the name of a module."""
PATH: Final = re.compile(r"\w[\w.-]*(?:/[\w.-]+)+/?")


class Dead(NamedTuple):
    """A name that does not exist."""

    path: Path
    line: int
    name: str


def divided(text: str, tree: ast.Module) -> tuple[str, str]:
    """The code and the prose of a module. Both have as many lines as the text, and a line of one is empty, or shorter,
    in the other.
    """
    code = text.splitlines()
    prose = [""] * len(code)
    alone = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    for string in alone:
        if isinstance(string, ast.Constant) and isinstance(string.value, str):
            for at in range(string.lineno - 1, string.end_lineno or string.lineno):
                prose[at], code[at] = code[at], ""
    for at, line in enumerate(code):
        before, mark, comment = line.partition("# ")
        if mark:
            code[at], prose[at] = before, comment
    return "\n".join(code), "\n".join(prose)


@cache
def divided_module(path: Path) -> tuple[str, str]:
    return divided(text_of(path), tree_of(path))


@cache
def names_of_package(package: str) -> frozenset[str]:
    mine = (path for path in product() if path.parts[0] == package)
    return frozenset().union(*(WORD.findall(divided_module(path)[0]) for path in mine))


@cache
def words_around() -> frozenset[str]:
    """The words in the modules that are not the product's: tests, measurements, the build. This module plants names."""
    around = set(sources()) - set(product()) - {Path(__file__).relative_to(ROOT)}
    return frozenset().union(*(WORD.findall(text_of(path)) for path in around))


@cache
def names_known_to(package: str) -> frozenset[str]:
    return OF_KAFKA.union(*(names_of_package(each) for each in (package, *BELOW[package])))


def dead_in_module(path: Path, prose: str) -> list[Dead]:
    """`prose`: the docstrings and comments of the module, each in its line."""
    known = names_known_to(path.parts[0])
    return [
        Dead(path, line, said)
        for line, words in enumerate(prose.splitlines(), 1)
        for said in IN_BACKTICKS.findall(words)
        if (is_name(said) and name_in(said) not in known) or not place_exists(said)
    ]


def dead_in_page(path: Path, text: str) -> list[Dead]:
    known = OF_KAFKA | words_around().union(*map(names_of_package, PACKAGES))
    examples = EXAMPLES.get(path, set())
    dead = []
    for line, words in enumerate(text.splitlines(), 1):
        for said in IN_BACKTICKS.findall(words):
            is_dead = is_name(said) and path not in PAGES_ABOUT_OTHERS and name_in(said) not in known
            if (is_dead or not place_exists(said)) and said.rpartition("/")[2] not in examples:
                dead.append(Dead(path, line, said))
    return dead


def is_name(said: str) -> bool:
    """Whether a text is the name of a function, a class or a constant rather than a word."""
    return bool(NAME.fullmatch(said)) and len(said) >= LEAST_LENGTH and ("_" in said[:-1] or said[0].isupper())


def name_in(said: str) -> str:
    return said.removesuffix("()")


def place_exists(said: str) -> bool:
    """Whether a path or a dotted name exists; True for every other text."""
    if PATH.fullmatch(said):
        folder = said.split("/")[0]
        return folder not in places() or said.rstrip("/") in places()
    if not DOTTED.fullmatch(said) or said in SETTINGS:
        return True
    parts = said.split(".")
    if parts[0] in LINKED:
        return False  # A module has one name, which begins with `moldau`.
    if parts[0] == "moldau":
        del parts[0]
    for size in range(len(parts), 0, -1):
        place = "/".join(parts[:size])
        if f"{place}.py" in places():
            return size == len(parts) or parts[size] in WORD.findall(text_of(Path(f"{place}.py")))
        if place in places():
            return size == len(parts)
    return False


@cache
def places() -> frozenset[str]:
    """The tracked files and their folders."""
    files = tracked("*")
    return frozenset(map(str, files)) | {str(parent) for path in files for parent in path.parents}


def test_modules_name_what_exists() -> None:
    dead = [each for path in product() for each in dead_in_module(path, divided_module(path)[1])]
    assert not dead, "\n".join(f"{path}:{line}: `{name}`" for path, line, name in dead)


def test_pages_name_what_exists() -> None:
    dead = [each for path in documents() for each in dead_in_page(path, text_of(path))]
    assert not dead, "\n".join(f"{path}:{line}: `{name}`" for path, line, name in dead)


@pytest.mark.parametrize(
    "planted",
    [
        "`decides_no_more` reads it",
        "see `storage/log/gone.py`",
        "at most `moldau.storage.log.log.GONE_MAX`",
        "see `storage.log.log`",
        "`GoneClass`",
    ],
)
def test_a_dead_name_is_found(planted: str) -> None:
    module = f'"""What it does.\n\n{planted}.\n"""\n'
    assert dead_in_module(Path("coordinator/transaction/table.py"), divided(module, ast.parse(module))[1])[0].line == 3
    assert dead_in_page(Path("docs/architecture.md"), f"# A page\n\nWhat it does: {planted}.\n")


def test_a_name_of_a_package_above_is_dead() -> None:
    prose = "The `ConnectionListener` decides."
    assert dead_in_module(Path("coordinator/x.py"), prose)
    assert not dead_in_module(Path("broker/x.py"), prose)
