"""The programs of docs/arrow.md run, one after another, beside a directory `data` with a topic `orders`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
from tests.support.segments import mixed_batches, write_checkpoints, write_partition

PAGE = Path(__file__).parents[3] / "docs" / "arrow.md"
TEXT = PAGE.read_text("utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_partition(tmp_path / "data", mixed_batches(40, 10), topic="orders")
    write_checkpoints(tmp_path / "data", {("orders", 0): 400})
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_the_programs_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    pytest.importorskip("pandas")
    names: dict[str, object] = {}
    programs = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(programs) == 6
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    assert "['key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType']" in shown
    assert "400 10" in shown and "binary[pyarrow]" in shown and "highWatermark" in shown


def test_the_table_of_arguments_is_that_of_the_function() -> None:
    table = TEXT.partition("| argument | meaning |")[2].partition("\n\n")[0]
    told = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.count("|") > 2))
    )
    assert told == set(inspect.signature(moldau.read_topic).parameters) - {"place", "topic", "table"}
