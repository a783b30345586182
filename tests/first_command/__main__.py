"""`python -m tests.first_command`: what a stranger meets first. From a fresh clone, in an empty environment, without
extras: the README's first command serves a client, the hot path is compiled behind it, and the second start runs
compiled. Then the pure and the compiled wheel, without extras; with `--extras` each extra alone as well.

The environment has HOME and PATH and nothing else, the client is installed in another one, and the seconds of each
step are printed. A step whose behaviour is wrong ends the run with status 1. Bars of time hold on a quiet machine of
two cores; the run fails at `SLACK` times each, because other processes may have the cores.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moldau.broker.cli.command import SUBCOMMANDS
from moldau.testing.ports import free_ports
from tests.first_command.extras import EXTRAS, NEEDED

ROOT: Final = Path(__file__).parents[2]
SERVED_S_MAX: Final = 25
"""From `make run` in a fresh clone until a client got its record back."""
COMPILED_S_MAX: Final = 75
"""From the start of the compile until the next start can take it."""
SLACK: Final = 8
RECORDS: Final = 3
CLIENT: Final = """
import sys, time
from confluent_kafka import Consumer, KafkaException, Producer
servers, topic, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
failed = []
wait_ms = int(seconds * 1000)
producer = Producer({
    "bootstrap.servers": servers, "message.timeout.ms": wait_ms, "topic.metadata.propagation.max.ms": wait_ms,
    "log_level": 0,
})
for number in range(3):
    producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
assert producer.flush(seconds) == 0 and not failed, failed
settings = {"bootstrap.servers": servers, "group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
consumer = Consumer(settings)
consumer.subscribe([topic])
values = [message.value() for message in consumer.consume(count, timeout=seconds)]
consumer.close()
assert values == [str(number % 3).encode() for number in range(count)], values
"""
"""Produces three records, and reads all `count` that the topic has then. A topic that is unknown when the node begins
to serve is not given up: librdkafka counts its 30 s from the first look, while the first command still installs.
"""


class Wrong(Exception):
    """A step did not do what a stranger expects of it."""


class Stranger:
    """A home folder with nothing in it, and an environment that has only HOME and PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.variables = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        self.client = folder / "client/bin/python"

    def run(self, *command: str | Path, cwd: Path, status: int = 0, **variables: str) -> str:
        """Run a command; what it printed. Raises `Wrong` if it ends with another status."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=cwd, env=self.variables | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != status:
            raise Wrong(f"{' '.join(words)} ended with {done.returncode}, not {status}:\n{done.stdout[-3000:]}")
        return done.stdout

    def environment(self, name: str, *packages: str | Path) -> Path:
        """A new virtual environment with these packages, in the versions of the lock file; its folder of commands."""
        place = self.folder / name
        self.run(sys.executable, "-m", "venv", place, cwd=self.folder)
        install = (place / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
        self.run(*install, "-c", ROOT / "requirements.lock", *packages, cwd=self.folder)
        return place / "bin"

    def exchange(self, port: int, topic: str, count: int, seconds: float) -> None:
        """Produce three records and read `count`. Raises `Wrong`."""
        self.run(self.client, "-c", CLIENT, f"127.0.0.1:{port}", topic, str(count), str(seconds), cwd=self.folder)


@contextmanager
def step(name: str, seconds_max: float | None = None) -> Iterator[None]:
    """Print the duration of a step, with its bar. Raises `Wrong` if it took `SLACK` times as long."""
    began = time.monotonic()
    yield
    tell(name, time.monotonic() - began, seconds_max)


def tell(name: str, seconds: float, seconds_max: float | None) -> None:
    """Print a duration and its bar. Raises `Wrong` if it is `SLACK` times the bar."""
    bar = "" if seconds_max is None else f" (bar: {seconds_max:.0f} s{'' if seconds <= seconds_max else ', missed'})"
    print(f"{seconds:7.1f} s  {name}{bar}", flush=True)
    if seconds_max is not None and seconds > SLACK * seconds_max:
        raise Wrong(f"{name} took {seconds:.0f} s, more than {SLACK} times the bar")


@contextmanager
def node(stranger: Stranger, command: list[str], cwd: Path) -> Iterator[Path]:
    """A node that a command starts; the file with what it prints. Ctrl-C ends it. Raises `Wrong` if it ends earlier."""
    log = cwd / "node.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=stranger.variables, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield log
        if process.poll() is not None:
            raise Wrong(f"{' '.join(command)} ended by itself:\n{log.read_text()[-3000:]}")
    except Wrong as problem:
        raise Wrong(f"{problem}\n{log.read_text()[-3000:]}") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)


def wait_for_compile(clone: Path) -> None:
    """Wait for the compile in the background. Raises `Wrong` if it fails or never ends."""
    folder = clone / ".compiled"
    began = (folder / "log").stat().st_ctime if (folder / "log").exists() else time.time()
    until = time.monotonic() + SLACK * COMPILED_S_MAX
    while not (folder / "ready/digest").exists():
        if (folder / "failed").exists():
            raise Wrong(f"the compile failed: {(folder / 'failed').read_text()}{(folder / 'log').read_text()}")
        if time.monotonic() > until:
            raise Wrong(f"no compile after {SLACK * COMPILED_S_MAX} s: {(folder / 'log').read_text()}")
        time.sleep(0.5)
    tell("the hot path is compiled in the background", time.time() - began, COMPILED_S_MAX)


def first_command(stranger: Stranger, clone: Path) -> None:
    """`make run` twice, with a client each time. Raises `Wrong`."""
    port = free_ports(1)[0]
    command = ["make", "run", f"PORT={port}"]
    began = time.monotonic()
    with node(stranger, command, clone) as log:
        stranger.exchange(port, "greetings", RECORDS, SLACK * SERVED_S_MAX)
        tell("make run serves a client", time.monotonic() - began, SERVED_S_MAX)
        require("plain Python this time" in log.read_text(), "the first start says that it is plain Python", log)
        wait_for_compile(clone)
    with step("make run again serves a client"), node(stranger, command, clone) as log:
        stranger.exchange(port, "greetings", 2 * RECORDS, 60)
        require("the hot path is compiled" in log.read_text(), "the second start takes the compiled modules", log)
    version = stranger.run(clone / ".venv/bin/moldau", "version", cwd=clone)
    require("hot path compiled" in version, "moldau version says compiled", version)
    check_commands(stranger, clone / ".venv/bin/moldau", clone, "-e '.[")


def check_commands(stranger: Stranger, moldau: Path, cwd: Path, remedy: str) -> None:
    """Without extras each command has its help, and those that need an extra name it in one line. Raises `Wrong`."""
    for each in SUBCOMMANDS:
        require("usage: moldau" in stranger.run(moldau, each.name, "--help", cwd=cwd), f"help of {each.name}", "")
    for extra, words in NEEDED.items():
        said = stranger.run(moldau, *words, cwd=cwd, status=1).strip()
        is_one_line = "\n" not in said and said.startswith("moldau: ") and "not installed" in said
        require(is_one_line and f"{remedy}{extra}]'" in said, f"moldau {' '.join(words)} names {extra}", said)


def require(holds: bool, what: str, seen: str | Path) -> None:
    """Raises `Wrong` if a claim does not hold."""
    if not holds:
        raise Wrong(f"{what}: it is not so. Seen:\n{seen.read_text() if isinstance(seen, Path) else seen}")


def check_wheel(stranger: Stranger, clone: Path, kind: str) -> Path:
    """Build a wheel in the clone and run it without extras; the wheel. Raises `Wrong`. The compiled one takes what
    `first_command` left.
    """
    built = stranger.folder / f"{kind}-wheel"
    command = (clone / ".venv/bin/python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", built, ".")
    with step(f"a {kind} wheel is built"):
        lock = str(ROOT / "requirements.lock")
        stranger.run(*command, cwd=clone, MOLDAU_WHEEL=kind, PIP_CONSTRAINT=lock)
    (wheel,) = built.glob("*.whl")
    with step(f"the {kind} wheel serves a client without extras"):
        commands = stranger.environment(kind, wheel)
        project = stranger.folder / f"{kind}-project"
        project.mkdir()
        said = stranger.run(commands / "moldau", "version", cwd=project)
        form = "hot path compiled" if kind == "compiled" else "hot path in plain Python"
        require(form in said, f"the {kind} wheel says its form", said)
        port = free_ports(1)[0]
        with node(stranger, [str(commands / "moldau"), "serve", "--port", str(port)], project):
            stranger.exchange(port, "orders", RECORDS, 60)
        check_commands(stranger, commands / "moldau", project, "'moldau[")
    return wheel


def check_extra(stranger: Stranger, wheel: Path, extra: str, data: Path) -> None:
    """Install a wheel with one extra alone: what it is for can be imported, and its command runs. Raises `Wrong`."""
    commands = stranger.environment(f"extra-{extra}", f"moldau[{extra}] @ {wheel.as_uri()}")
    for module in EXTRAS[extra].imports:
        stranger.run(commands / "python", "-c", f"import {module}", cwd=stranger.folder)
    for words, expected in EXTRAS[extra].commands:
        said = stranger.run(
            commands / "moldau", *(word.replace("DATA", str(data)) for word in words), cwd=stranger.folder
        )
        require(re.search(expected, said) is not None, f"moldau {' '.join(words)} prints {expected}", said)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.first_command", description=__doc__)
    parser.add_argument("--extras", action="store_true", help="each extra alone as well: some minutes, 1 GB")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moldau-first-", ignore_cleanup_errors=True) as folder:
        try:
            run_all(Stranger(Path(folder)), with_extras=asked.extras)
        except Wrong as problem:
            print(f"FAILED: {problem}", flush=True)
            return 1
    return 0


def run_all(stranger: Stranger, *, with_extras: bool) -> None:
    """Every step in order. Raises `Wrong`."""
    clone = stranger.folder / "moldau"
    with step("git clone, and a client in another environment"):
        stranger.run("git", "clone", "-q", ROOT, clone, cwd=stranger.folder)
        stranger.environment("client", "confluent-kafka")
    first_command(stranger, clone)
    wheel = check_wheel(stranger, clone, "pure")
    check_wheel(stranger, clone, "compiled")
    if with_extras:
        for extra in EXTRAS:
            with step(f"the extra {extra} alone"):
                check_extra(stranger, wheel, extra, stranger.folder / "pure-project/data")


if __name__ == "__main__":
    sys.exit(main())
