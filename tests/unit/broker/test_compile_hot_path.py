"""The compiled hot path: what is there is what the sources say."""

from __future__ import annotations

from broker.compile_hot_path import HOT_PATH, LIBRARY, ROOT, compiled_files, stale_files


def test_no_extension_runs_in_the_stead_of_a_newer_source() -> None:
    assert stale_files() == [], "run `python -m broker.compile_hot_path` again, or with --remove"


def test_all_of_the_hot_path_is_compiled_or_none_of_it() -> None:
    assert len(list(compiled_files())) in (0, len(HOT_PATH))
    assert LIBRARY.exists() == bool(list(compiled_files()))


def test_the_modules_named_are_there() -> None:
    assert all((ROOT / name).is_file() for name in HOT_PATH)
