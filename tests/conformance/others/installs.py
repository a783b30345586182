"""Installs the packages of a client in a folder of the cache, and says the command that runs its program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.conformance.others.other import Other, Registry
from tests.conformance.toolchain import CACHE, Missing

PROGRAMS = Path(__file__).parent / "programs"
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>moldau.conformance</groupId><artifactId>other</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
CARGO = """\
[package]
name = "other"
version = "0.1.0"
edition = "2021"

[dependencies]
{dependencies}

[profile.dev]
debug = false
"""


def install(other: Other) -> list[str]:
    """The command of an installed client. Raises `Missing` with the words of the installation that failed."""
    if other.registry is Registry.DEBIAN:
        return _debian(other)
    source = PROGRAMS / other.registry.name.lower() / other.program
    home = CACHE / "others" / other.registry.name.lower() / f"{other.name.replace('/', '_')}-{other.version}"
    make, command = MAKERS[other.registry]
    recipe = "\n".join(other.packages) + "\n" + source.read_text()
    stamp = home / "recipe"
    if not stamp.exists() or stamp.read_text() != recipe:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        make(other, source, home)
        stamp.write_text(recipe)
    return command(source, home)


def _debian(other: Other) -> list[str]:
    for package in other.packages:
        asked = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
        if not asked.stdout:
            raise Missing(f"Debian's package {package} is not installed")
        if package == other.packages[0] and asked.stdout != other.version:
            raise Missing(f"{package} is {asked.stdout} here, the catalogue has {other.version}")
    found = shutil.which(other.program, path="/usr/bin:/usr/sbin:/usr/local/bin")
    if found is None:
        raise Missing(f"{other.program} is not in the packages {', '.join(other.packages)}")
    return [found]


def _npm(other: Other, source: Path, home: Path) -> None:
    (home / "package.json").write_text('{"private": true}')
    _run(home, "npm", "install", "--silent", "--no-audit", "--no-fund", *other.packages)
    shutil.copy(source, home)


def _node(home: Path) -> str:
    """The Node.js that is installed beside the client, or that of the machine."""
    beside = home / "node_modules/.bin/node"
    return str(beside) if beside.exists() else "node"


def _pypi(other: Other, source: Path, home: Path) -> None:
    _run(home, sys.executable, "-m", "venv", "venv")
    _run(home, "venv/bin/python", "-m", "pip", "install", "-q", *other.packages)
    shutil.copy(source, home)


def _go(other: Other, source: Path, home: Path) -> None:
    shutil.copy(source, home / "main.go")
    _run(home, "go", "mod", "init", "other")
    _run(home, "go", "get", *other.packages)
    _run(home, "go", "mod", "tidy")
    _run(home, "go", "build", "-buildvcs=false", "-o", "program", ".")


def _crates(other: Other, source: Path, home: Path) -> None:
    (home / "Cargo.toml").write_text(CARGO.format(dependencies="\n".join(other.packages)))
    (home / "src").mkdir()
    shutil.copy(source, home / "src" / "main.rs")
    _run(home, "cargo", "build", "-q")


def _maven(other: Other, source: Path, home: Path) -> None:
    dependencies = "".join(DEPENDENCY.format(*package.split(":")) for package in other.packages)
    (home / "pom.xml").write_text(POM.format(dependencies=dependencies))
    _run(home, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    _run(home, "javac", "-nowarn", "-cp", "lib/*", "-d", "classes", str(source))


def _run(home: Path, *command: str) -> None:
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, text=True)
    except FileNotFoundError:
        raise Missing(f"{command[0]} is not on the PATH") from None
    if done.returncode != 0:
        raise Missing(f"{' '.join(command[:4])} failed: {(done.stdout + done.stderr).strip()[-1500:]}")


Maker = Callable[[Other, Path, Path], None]
MAKERS: dict[Registry, tuple[Maker, Callable[[Path, Path], list[str]]]] = {
    Registry.NPM: (_npm, lambda source, home: [_node(home), str(home / source.name)]),
    Registry.PYPI: (_pypi, lambda source, home: [str(home / "venv/bin/python"), str(home / source.name)]),
    Registry.GO: (_go, lambda source, home: [str(home / "program")]),
    Registry.CRATES: (_crates, lambda source, home: [str(home / "target/debug/other")]),
    Registry.MAVEN: (
        _maven,
        lambda source, home: ["java", "-Xmx256m", "-cp", f"{home}/classes:{home}/lib/*", source.stem],
    ),
}
