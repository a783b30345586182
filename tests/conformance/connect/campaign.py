"""A file that grows, a file source with exactly-once support, a file sink, and the source's worker killed meanwhile."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.brokers import Ports
from tests.conformance.committed import (
    TopicReader,
    all_committed,
    await_in_sync,
    create_topics,
    first_difference,
)
from tests.conformance.connect.worker import Worker
from tests.conformance.outcome import Failed
from tests.conformance.secured.access import Access
from tests.conformance.session import expect
from tests.conformance.toolchain import Toolchain
from tests.conformance.trio import NODES, Trio, pairs_of

Report = Callable[[str], None]
TOPIC = {"lines": 1}
"""One partition: its order is the file's."""
SOURCE, SINK = "source", "sink"
LINES_PER_ROUND = 400
LINES_PER_SECOND = 100
DOWN_S = 1.0
CATCH_UP_S = 180.0
SETTINGS = ("min.insync.replicas=2", "transaction.state.log.min.isr=2")


def line_of(number: int) -> str:
    return f"<line {number}>"


class Copying:
    """Three brokers, two workers, and the two files."""

    def __init__(
        self, brokers: Trio, toolchain: Toolchain, ports: Ports, directory: Path, access: Access | None = None
    ) -> None:
        """`access` is that of the workers; the reader takes the brokers' own address."""
        self.brokers = brokers
        self.lines: list[str] = []
        self._read, self._written = directory / "read.txt", directory / "written.txt"
        self._read.touch()
        at = access or Access(brokers.bootstrap)
        self.workers = [Worker(f"worker-{each}", toolchain, at, directory, ports.pair()) for each in (1, 2)]

    @classmethod
    def plain(cls, name: str, toolchain: Toolchain, ports: Ports, directory: Path) -> Copying:
        brokers = Trio(name, toolchain, pairs_of(ports), directory, extra=SETTINGS)
        return cls(brokers, toolchain, ports, directory)

    def prepare(self) -> None:
        """What the workers need besides the topic."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Brokers and workers serve, both connectors run; nothing is left running."""
        self.brokers.format()
        try:
            self.brokers.start()
            create_topics(self.brokers.bootstrap, TOPIC, retention_ms="-1")
            await_in_sync(self.brokers.bootstrap, NODES)
            self.prepare()
            for worker in self.workers:
                worker.start()
            self._connect(SOURCE, "FileStreamSource", file=self._read, topic="lines", exactly_once_support="required")
            self._connect(SINK, "FileStreamSink", file=self._written, topics="lines")
            self.reader = TopicReader(self.brokers.bootstrap, TOPIC)
            yield
            self.reader.close()
        finally:
            for worker in self.workers:
                worker.close()
            self.brokers.close()

    def _connect(self, name: str, kind: str, **settings: object) -> None:
        """`exactly_once_support` stands for `exactly.once.support`. Until its task runs."""
        config = {setting.replace("_", "."): str(value) for setting, value in settings.items()}
        config |= {"connector.class": kind, "tasks.max": "1"}
        self.workers[0].ask("PUT", f"/connectors/{name}/config", config)
        self.worker_of(name, self.workers[0])

    def worker_of(self, name: str, asked: Worker) -> Worker:
        """The worker that runs the connector's task. Raises `Failed` if none does in time."""
        deadline = time.monotonic() + CATCH_UP_S
        while not (running := asked.running_tasks(name)):
            if time.monotonic() > deadline:
                raise Failed(f"the task of {name} does not run: {asked.ask('GET', f'/connectors/{name}/status')}")
            time.sleep(0.3)
        return next(worker for worker in self.workers if worker.address in running)

    def round(self, deed: Callable[[int], None] = lambda index: None) -> float:
        """The file grows by a round's lines; the seconds until the topic and the sink hold them. Raises `Failed`."""
        with self._read.open("a") as file:
            for index in range(LINES_PER_ROUND):
                self.lines.append(line_of(len(self.lines)))
                file.write(self.lines[-1] + "\n")
                file.flush()
                time.sleep(1 / LINES_PER_SECOND)
                deed(index)
        written = time.monotonic()
        self._catch_up(written + CATCH_UP_S)
        return time.monotonic() - written

    def kill_of_source(self, round_number: int) -> Callable[[int], None]:
        """The deed of a round: the worker of the source's task is killed, and started again."""
        victim = self.worker_of(SOURCE, self.workers[round_number % 2])
        back_at = 0.0

        def deed(index: int) -> None:
            nonlocal back_at
            if index == LINES_PER_ROUND // 3:
                victim.kill()
                back_at = time.monotonic() + DOWN_S
            if back_at and time.monotonic() >= back_at:
                victim.start()
                back_at = 0.0

        return deed

    def _catch_up(self, deadline: float) -> None:
        while True:
            self.reader.read(0.2)
            read, sunk = len(self.reader.records["lines"]), self.sunk()
            if read >= len(self.lines) and set(sunk) >= set(self.lines):
                break
            for worker in self.workers:
                worker.check()
            if time.monotonic() > deadline:
                said = "; ".join(f"{each.name}: {each.last_lines()}" for each in self.workers)
                raise Failed(
                    f"of {len(self.lines)} lines {read} are in the topic, {len(set(sunk))} in the sink; {said}"
                )
        self.judge([record.value for record in self.reader.records["lines"]])

    def judge(self, values: list[str]) -> None:
        """Raises `Failed` if the topic or the sink holds what it must not."""
        wrong = difference(values, self.sunk(), self.lines)
        expect(not wrong, wrong)

    def sunk(self) -> list[str]:
        return whole_lines(self._written.read_text()) if self._written.exists() else []


def whole_lines(text: str) -> list[str]:
    """A worker that is killed may leave half of its last line."""
    return re.findall(r"<line \d+>", text)


def difference(values: list[str], sunk: list[str], lines: list[str]) -> str:
    """The topic has each line once and in order. The sink may repeat lines, and gives them in order the first time."""
    topic = first_difference([json.loads(value) for value in values], lines)
    sink = first_difference(list(dict.fromkeys(sunk)), lines)
    return f"lines of the topic: {topic}" if topic else f"lines of the sink: {sink}" if sink else ""


def campaign(copying: Copying, kills: int, say: Report) -> int:
    """So many kills; then the topic holds each line exactly once, in order. The number of lines. Raises `Failed`."""
    with copying.running():
        say(f"two workers: complete {copying.round():.1f} s after the last line")
        for number in range(1, kills + 1):
            seconds = copying.round(copying.kill_of_source(number))
            say(f"kill {number} of {kills}: complete {seconds:.1f} s after the last line")
        for worker in copying.workers:
            worker.stop()
        held = all_committed(copying.brokers.bootstrap, TOPIC)
        copying.judge([record.value for record in held["lines"]])
        expect(held["lines"][-1].offset >= len(copying.lines), "no marker lies among the lines")
    return len(copying.lines)
