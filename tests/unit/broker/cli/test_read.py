"""`moldau read`: the rows of a topic and of queries in each format, refusals, and what an interrupt leaves."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from datetime import time
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from moldau.broker.cli import read
from moldau.broker.cli.command import main, parser
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.engines import row_formats
from moldau.tables.options.read_options import TABLES
from tests.support.segments import mixed_batches, write_checkpoints, write_partition


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("read")
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(5, 10), partition=1)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 50})
    return directory


def shown(directory: Path, capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> bytes:
    assert main(["read", "--path", str(directory), *arguments]) == 0
    return capfdbinary.readouterr().out


def test_the_words_of_the_command_are_those_of_the_tables() -> None:
    assert sorted(read._TABLES) == sorted(TABLES)
    assert tuple(row_formats.WRITERS) == read._FORMATS
    for line in read.EPILOG.splitlines():
        if line.startswith("  moldau read"):
            assert parser(first_word="read").parse_args(shlex.split(line)[1:])


def test_rows_as_json_lines(directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = shown(directory, capfdbinary, "--topic", "t", "--start", "395", "--format", "jsonl").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["offset"] for row in rows] == list(range(395, 400))
    assert rows[0]["key"].startswith("key-") and rows[0]["timestamp"].startswith("2023-11-14T")


def test_rows_as_csv_and_as_a_table(directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    asked = ["--topic", "t", "--columns", "partition,offset,key", "--limit", "12"]
    text = shown(directory, capfdbinary, *asked, "--format", "csv").decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["offset"] for row in rows] == [str(each) for each in range(12)]
    assert {row["key"] for row in rows} >= {"", "key-1", "key-3"}
    lines = shown(directory, capfdbinary, *asked).decode().splitlines()
    assert lines[0].split() == ["partition", "offset", "key"] and len(lines) == 14
    assert lines[2].split() == ["0", "0", "null"]


def test_rows_as_parquet_and_arrow(directory: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output = tmp_path / "rows.parquet"
    shown(directory, capfdbinary, "--topic", "t", "--format", "parquet", "--output", str(output))
    assert pq.read_table(output).num_rows == 450
    assert [each.name for each in tmp_path.iterdir()] == ["rows.parquet"]
    stream = shown(directory, capfdbinary, "--topic", "t", "--table", "batches", "--format", "arrow")
    assert pa.ipc.open_stream(stream).read_all().num_rows == 45


def test_a_query(directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pytest.importorskip("duckdb")
    query = "select partition, count(*) as n from t group by 1 order by 1"
    lines = shown(directory, capfdbinary, "--sql", query, "--format", "csv").decode().splitlines()
    assert lines[1:] == ["0,400", "1,50"]
    assert main(["read", "--path", str(directory), "--sql", "select nothing from t"]) == 1
    assert b'"nothing" not found' in capfdbinary.readouterr().err
    assert main(["read", "--path", str(directory), "--sql", ""]) == 1
    assert b"gives no rows" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "--topic or --sql is missing"),
        ("--topic u", "moldau: no partition of u is in the places that are read, only of t"),
        ("--topic t --output /nonexistent/rows", "moldau: /nonexistent/rows: No such file or directory"),
        ("--topic t --start soon", "--start: 'soon' is neither an offset nor a time"),
        ("--topic t --limit -1", "--limit: -1 is below 0"),
        ("--topic t --columns size", "there is no column size"),
        ("--sql x --start 3", "--start: a query says this itself"),
        ("--sql x --table latest", "--table: a query names what it reads"),
    ],
)
def test_refusals(directory: Path, arguments: str, reason: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["read", "--path", str(directory), *arguments.split()]) == 1
    assert reason in capfdbinary.readouterr().err.decode()


def test_a_failed_read_leaves_no_file(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 400})
    last = max((tmp_path / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5] + b"12345")
    output = tmp_path / "rows.jsonl"
    asked = ["--topic", "t", "--format", "jsonl", "--output", str(output)]
    assert main(["read", "--path", str(tmp_path), *asked]) == 1
    assert "the checksum of the batch does not match" in capfdbinary.readouterr().err.decode()
    assert not list(tmp_path.glob("rows*"))


def test_a_warning_is_a_line_without_code(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The records are there, and the broker has not written its high watermark down."""
    write_partition(tmp_path, mixed_batches(1, 10))
    assert main(["read", "--path", str(tmp_path), "--topic", "t", "--format", "jsonl"]) == 0
    (line,) = capfdbinary.readouterr().err.decode().splitlines()
    assert line.startswith("moldau: t-0: the broker has not written down its high watermark yet")


def test_progress_is_shown_on_standard_error(directory: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["read", "--path", str(directory), "--topic", "t", "--progress", "--format", "jsonl"]) == 0
    told = capfdbinary.readouterr()
    assert b"MB, 450 rows" in told.err and b"MB" not in told.out.splitlines()[0]


@pytest.mark.processes
def test_an_interrupt_ends_the_command_and_leaves_no_file(tmp_path: Path) -> None:
    """The reader of the pipe takes nothing, so that the command waits in the middle of its output."""
    write_partition(tmp_path, mixed_batches(400, 10))
    write_checkpoints(tmp_path, {("t", 0): 4000})
    program = "import sys; from moldau.broker.cli.command import main; sys.exit(main())"
    words = ["read", "--path", str(tmp_path), "--topic", "t", "--format", "jsonl"]
    command = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert command.stdout is not None and command.stdout.read(1) == b"{"
    command.send_signal(signal.SIGINT)
    assert command.wait(20) == 130
    assert command.stderr is not None and command.stderr.read() == b""


def test_times_past_the_year_9999_are_numbers(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A producer has taken microseconds for milliseconds."""
    at = 1_795_000_000_000_000
    write_partition(tmp_path, [build_batch([Record(b"a", b"1", 1_000), Record(b"b", b"2", at)])])
    write_checkpoints(tmp_path, {("t", 0): 2})
    lines = shown(tmp_path, capfdbinary, "--topic", "t", "--format", "jsonl").splitlines()
    assert [json.loads(line)["timestamp"] for line in lines] == ["1970-01-01T00:00:01+00:00", at * 1000]
    assert str(at * 1000) in shown(tmp_path, capfdbinary, "--topic", "t").decode()


def test_a_time_of_day_is_text() -> None:
    column = pa.array([time(12, 30)], pa.time64("us"))
    batch = pa.RecordBatch.from_arrays([column, pa.array([[time(1)]])], names=["clock", "clocks"])
    written = io.BytesIO()
    row_formats.write_rows([batch], batch.schema, "jsonl", written)
    assert json.loads(written.getvalue()) == {"clock": "12:30:00", "clocks": ["01:00:00"]}
    assert row_formats.text_of(time(12, 30)) == "12:30:00"


def test_an_output_that_is_no_regular_file_stays_what_it_is(directory: Path, tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    target.touch()
    link.symlink_to(target)
    asked = ["read", "--path", str(directory), "--topic", "t", "--columns", "offset", "--limit", "2", "--format", "csv"]
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        assert main([*asked, "--output", str(pipe)]) == 0
        assert reader.read() == b'"offset"\n0\n1\n'
    assert pipe.is_fifo()
    assert main([*asked, "--output", str(link)]) == 0
    assert link.is_symlink() and target.read_bytes() == b'"offset"\n0\n1\n'
    assert sorted(tmp_path.iterdir()) == [link, pipe, target]


@pytest.mark.parametrize("form", ["table", "jsonl", "csv", "parquet", "arrow"])
def test_a_full_disk_is_named_with_the_output(
    form: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(read, "standard_output", lambda invocation: FullDisk())
    assert main(["read", "--path", str(directory), "--topic", "t", "--format", form]) == 1
    assert capfdbinary.readouterr().err == b"moldau: the output cannot be written: No space left on device\n"
