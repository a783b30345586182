"""The page on Spark shows commands that `moldau spark` takes, Python that compiles, and images that are there."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from building.wheel_tree import LINKED
from moldau.broker.cli.command import parser

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"
TEXT = PAGE.read_text("utf-8")
IMAGE_SIZE_MAX = 200_000
NAMED = re.compile(rf"`(moldau\.(?:{'|'.join(LINKED)})\.[\w.]+)[`(]")
WORDS = {"job": ["spark"], "moldau spark": ["spark"]}
"""How a command line of the page begins; `job` is the alias that the page declares."""


def commands() -> list[str]:
    lines = TEXT.replace("\\\n", " ").splitlines()
    found = re.compile(r"    (?:\$ )?((?:job|moldau spark) .*)")
    return [match[1] for line in lines if (match := found.fullmatch(line))]


def words_of(command: str) -> list[str]:
    """The arguments of the command, up to what the shell does with its output or its exit status."""
    start = next(each for each in sorted(WORDS, key=len, reverse=True) if command.startswith(each + " "))
    words = shlex.split(re.split(r" > |; | \| ", command.removeprefix(start))[0], comments=True)
    return [*WORDS[start], *words]


COMMANDS = commands()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_accepted(command: str) -> None:
    words = words_of(command)
    assert parser(first_word="spark").parse_args(words).job is not None


def test_each_job_has_an_example_on_the_compose_cluster() -> None:
    walk = {words_of(command)[1] for command in COMMANDS if command.startswith("job ")}
    assert walk == {"latest", "export", "report", "audit", "replay"}


def test_images_are_there_and_small() -> None:
    images = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert images
    for image in images:
        assert 0 < (PAGE.parent / image).stat().st_size < IMAGE_SIZE_MAX, image


def imports_of(block: str) -> set[tuple[str, str]]:
    """(module, name) of each import of the package in a block of Python."""
    nodes = [node for node in ast.walk(ast.parse(textwrap.dedent(block))) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", each.name) for node in nodes for each in node.names}


@pytest.mark.parametrize("page", [PAGE, PAGE.parents[1] / "README.md"], ids=lambda page: page.name)
def test_what_is_imported_from_the_package_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    lines = re.findall(r"^ *(from moldau[\w.]* import [\w, ]+)", text, re.MULTILINE)
    found = {each for line in lines for each in imports_of(line)}
    found |= {tuple(each.rpartition(".")[::2]) for each in NAMED.findall(text)}
    for module, name in found:
        assert hasattr(import_module(module), name) or find_spec(f"{module}.{name}"), f"{module} has no {name}"
    assert page != PAGE or found


def test_blocks_of_python_compile() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        compile(textwrap.dedent(block), "docs/spark.md", "exec")
