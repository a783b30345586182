"""What an entry of the catalogue is, and the records that a client is given and must read again."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conformance.outcome import Failed

COUNT = 20
"""Records that each client produces; the programs have the number as their fourth argument."""
PARTITIONS = 3
PATIENCE_S = 60.0
"""For one client to produce and consume them."""
NO_HEADER = "-"

Line = tuple[str, str, str]
"""Key, value and the value of the header `place`, as a program prints them, between tabs."""


class Registry(Enum):
    """Where a client comes from, as the page names it."""

    NPM = "npm"
    PYPI = "PyPI"
    GO = "Go"
    CRATES = "crates.io"
    MAVEN = "Maven"
    DEBIAN = "Debian 12"


@dataclass(frozen=True, slots=True)
class Place:
    """A broker, with names of a topic and a group that nobody else has, and an empty directory."""

    bootstrap: str
    topic: str
    group: str
    directory: Path

    @classmethod
    def fresh(cls, bootstrap: str, directory: Path) -> Place:
        name = uuid.uuid4().hex[:12]
        own = directory / name
        own.mkdir(parents=True)
        return cls(bootstrap, f"topic-{name}", f"group-{name}", own)

    @property
    def daemon_log(self) -> Path:
        return self.directory / "daemon.log"

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(30)

    def produce(self, lines: Sequence[Line]) -> None:
        """By confluent-kafka, for tools that only consume."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value, header in lines:
            producer.produce(self.topic, value, key, headers=[("place", header.encode())])
        if producer.flush(30):
            raise Failed("records for the tool could not be produced")

    def values(self, count: int, patience_s: float = 30.0) -> list[str]:
        """The first values of the topic by confluent-kafka, for tools that only produce; fewer when no more come."""
        own = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **own})
        try:
            consumer.subscribe([self.topic])
            found: list[str] = []
            while len(found) < count and (record := consumer.poll(patience_s)) is not None:
                if record.error() is None:
                    found.append((record.value() or b"").decode())
            return found
        finally:
            consumer.close()


Use = Callable[[Sequence[str], Place], None]
"""Runs the command of a client at a place; raises `Failed` with what it said instead of what was expected."""


@dataclass(frozen=True, slots=True)
class Other:
    """One client or tool. `packages` are what its registry installs, the client with its version first."""

    name: str
    version: str
    registry: Registry
    packages: Sequence[str]
    program: str
    """The file in `programs/`, or the tool's own name."""
    done: str
    use: Use


def given(headers: bool) -> list[Line]:
    return [(f"key-{index}", f"value {index}", str(index) if headers else NO_HEADER) for index in range(COUNT)]


def round_trip(*, headers: bool = True, creates: bool = True) -> Use:
    """The program produces the records of `given`, consumes them in a group and prints a line for each."""

    def use(command: Sequence[str], place: Place) -> None:
        if not creates:
            place.create_topic()
        printed = said(command, place, place.bootstrap, place.topic, place.group, str(COUNT))
        read = sorted(tuple(line.split("\t")) for line in printed.splitlines() if line.count("\t") == 2)
        if read != sorted(given(headers)):
            raise Failed(f"read {len(read)} records, which are not the {COUNT} that were produced: {read[:2]}")

    return use


def said(command: Sequence[str], place: Place, *words: str, seconds: float = PATIENCE_S) -> str:
    """What a command printed. Raises `Failed` with its last words if it failed or did not end."""
    errors = place.directory / "stderr"
    with errors.open("wb") as stderr:
        try:
            done = subprocess.run(
                [*command, *words], stdout=subprocess.PIPE, stderr=stderr, timeout=seconds, cwd=place.directory
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {seconds:g} s; {last_words(errors)}") from None
    if done.returncode != 0:
        raise Failed(last_words(errors))
    return done.stdout.decode(errors="replace")


def last_words(errors: Path) -> str:
    """The last line that speaks of an error, or the last line: what follows it is a place in the code."""
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    spoken = [line for line in lines if re.search(r"error|exception|panic", line, re.IGNORECASE) and line[:3] != "at "]
    return (spoken or lines or ["it said nothing"])[-1][:300]
