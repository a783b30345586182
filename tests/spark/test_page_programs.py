"""The programs of docs/spark.md run as its reader runs them: the one that fills topics, and those over output of jobs.

The page is on three nodes in Docker and on a Spark cluster; here it is one node and Spark in one process, with a
twentieth of the records. The commands between the programs are those of the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from moldau.testing.ports import free_ports
from tests.chaos.processes import Node
from tests.unit.docs.test_spark_page import COMMANDS, TEXT, words_of

RECORDS: Final = 20_000
PATIENCE_S: Final = 120

pytestmark = pytest.mark.processes


def programs() -> list[str]:
    """The blocks of Python of the page, in their order."""
    return re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


class Reader:
    """A reader of the page, whose node and directories have other places."""

    def __init__(self, node: Node, directory: Path) -> None:
        self._places = {
            "localhost:9092,localhost:9192,localhost:9292": node.bootstrap,
            "/brokers/1,/brokers/2,/brokers/3": str(node.data),
            "$BROKERS": str(node.data),
            "/output/": f"{directory}/",
            "spark://spark-master:7077": "local[2]",
            "k=400_000": f"k={RECORDS}",
        }

    def here(self, text: str) -> str:
        for place, own in self._places.items():
            text = text.replace(place, own)
        return text

    def job(self, name: str, *words: str) -> str:
        """Run the first command of the page for a job that has these words."""
        command = next(each for each in COMMANDS if each.startswith(f"job {name} ") and all(w in each for w in words))
        return self._run(["-m", "moldau", *(self.here(word) for word in words_of(command))])

    def program(self, holding: str) -> str:
        """Run the program of the page that has this text."""
        (found,) = (each for each in programs() if holding in each)
        return self._run(["-c", self.here(found)])

    def _run(self, words: list[str]) -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


def await_checkpoint(path: Path) -> None:
    """Until all records are below the high watermarks that the node has written down: jobs read up to these."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        if sum(int(line.split()[2]) for line in lines if line.startswith("orders ")) == RECORDS:
            return
        assert time.monotonic() < deadline, lines
        time.sleep(0.1)


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the extra moldau[delta] is not installed")
    assert len(programs()) == 3, "a program without a test here"
    port, controller_port = free_ports(2)
    node = Node(tmp_path / "node", port, controller_port)
    reader = Reader(node, tmp_path / "output")
    (tmp_path / "output").mkdir()
    node.start()
    try:
        reader.program("producer.flush()")
        await_checkpoint(node.data / "replication-offset-checkpoint")
        assert f"run 1: {RECORDS:,} records of orders" in reader.job("export", "--topic orders", "/output/orders")
        assert "keys of accounts" in reader.job("latest", "--format delta")
        history = reader.program("DeltaTable(").splitlines()
        assert re.fullmatch(r'1 WRITE \{"accounts": \{.*\}\}', history[0]) and history[1:] == ["0 CREATE TABLE None"]
        shown = reader.program("local_session(")
        assert f"{RECORDS} rows exported, {RECORDS} offsets" in shown
        assert re.search(r"\|customer-0\| *\d+\| *\d+\|", shown)
    finally:
        node.close()
