"""The extension modules of a checkout: all of them or none, none older than its source, and none half-installed."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from building import wheel_tree
from building.extensions import (
    EXTENSIONS,
    LIBRARY,
    compiled_files,
    install,
    is_current,
    remove_compiled,
    remove_stale,
    stale_files,
)
from building.hot_path import C_SOURCES, COMPILED_SOURCES, HEADERS, HOT_PATH, PACKAGES, ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The names of the sources, an hour old, with nothing compiled."""
    root = tmp_path / "checkout"
    for name in COMPILED_SOURCES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
        os.utime(root / name, (1, 1))
    return root


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A finished set of extension modules."""
    directory = tmp_path / "finished"
    for name in (*EXTENSIONS, LIBRARY):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    return directory


def test_no_extension_module_here_is_older_than_its_source() -> None:
    assert stale_files() == [], "run `make compiled`, or `python -m building --remove`"


def test_all_of_the_hot_path_is_compiled_here_or_none_of_it() -> None:
    assert len(list(compiled_files())) in (0, len(COMPILED_SOURCES))
    assert (ROOT / LIBRARY).exists() == bool(list(compiled_files()))


def test_the_modules_named_are_there_and_in_packages_that_are_searched() -> None:
    assert all((ROOT / name).is_file() for name in COMPILED_SOURCES)
    assert {name.split("/")[1] for name in COMPILED_SOURCES} <= set(PACKAGES)


@pytest.mark.parametrize("name", HOT_PATH)
def test_no_compiled_module_hands_out_a_generator_expression(name: str) -> None:
    """Mypyc makes a list of it at once: what is handed out would be computed before anybody asks for it."""
    handed_out = [
        node.lineno
        for node in ast.walk(ast.parse((ROOT / "moldau" / name).read_text("utf-8")))
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Assign)
        and isinstance(node.value, ast.GeneratorExp)
    ]
    assert handed_out == []


def test_a_set_is_current_until_a_source_is_newer(checkout: Path, finished: Path) -> None:
    assert not is_current(checkout)
    install(finished, checkout)
    assert is_current(checkout) and stale_files(checkout) == []
    source = checkout / COMPILED_SOURCES[0]
    os.utime(source, None)
    os.utime(checkout / EXTENSIONS[0], (2, 2))
    assert not is_current(checkout) and stale_files(checkout) == [checkout / EXTENSIONS[0]]
    assert EXTENSIONS[0].rpartition("/")[2] in remove_stale(checkout)
    assert list(compiled_files(checkout)) == [] and not (checkout / LIBRARY).exists()


def test_an_extension_module_whose_source_is_gone_is_stale(checkout: Path, finished: Path) -> None:
    install(finished, checkout)
    (checkout / COMPILED_SOURCES[3]).unlink()
    assert stale_files(checkout) == [checkout / EXTENSIONS[3]]


@pytest.mark.parametrize("changed", [C_SOURCES[0], C_SOURCES[0].replace(".c", ".py"), HEADERS[0]])
def test_a_module_in_c_is_stale_where_any_of_its_texts_is_newer(checkout: Path, finished: Path, changed: str) -> None:
    install(finished, checkout)
    (checkout / changed).write_text("")
    made = checkout / EXTENSIONS[COMPILED_SOURCES.index(C_SOURCES[0])]
    os.utime(made, (2, 2))
    assert stale_files(checkout) == [made]


def test_nothing_is_removed_where_nothing_is_stale(checkout: Path, finished: Path) -> None:
    install(finished, checkout)
    remove_stale(checkout)
    assert is_current(checkout)


def test_a_wheel_takes_the_current_modules_of_its_checkout(
    checkout: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Path] = []

    def compile_tree(tree: Path, sources: tuple[str, ...], group: str) -> list[str]:
        compiled.append(tree)
        return []

    monkeypatch.setattr(wheel_tree, "compile_tree", compile_tree)
    tree = tmp_path / "tree"
    for name in (*EXTENSIONS, LIBRARY):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
    wheel_tree.compile_wheel(checkout, tree)
    assert compiled == [tree]
    install(finished, checkout)
    wheel_tree.compile_wheel(checkout, tree)
    assert compiled == [tree] and {name: (tree / name).read_text() for name in EXTENSIONS} == {
        name: name for name in EXTENSIONS
    }
    assert (tree / LIBRARY).read_text() == LIBRARY


def test_the_library_is_there_only_while_the_set_is_whole(
    checkout: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extension modules without it refuse to load; a part of a set with it would crash the interpreter."""
    install(finished, checkout)
    seen: list[bool] = []
    replace, unlink = os.replace, Path.unlink

    def is_consistent() -> bool:
        return not (checkout / LIBRARY).exists() or set(compiled_files(checkout)) == {checkout / e for e in EXTENSIONS}

    def watched_replace(old: Path, new: Path) -> None:
        replace(old, new)
        seen.append(is_consistent())

    def watched_unlink(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        seen.append(is_consistent())

    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(Path, "unlink", watched_unlink)
    install(finished, checkout)
    remove_compiled(checkout)
    assert all(seen) and len(seen) > 3 * len(COMPILED_SOURCES)


def test_an_installation_that_was_killed_is_done_again(
    checkout: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace
    left = [len(EXTENSIONS) // 2]

    def killed_replace(old: Path, new: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        replace(old, new)

    monkeypatch.setattr(os, "replace", killed_replace)
    with pytest.raises(KeyboardInterrupt):
        install(finished, checkout)
    assert not (checkout / LIBRARY).exists() and not is_current(checkout)
    monkeypatch.undo()
    install(finished, checkout)
    assert is_current(checkout)
