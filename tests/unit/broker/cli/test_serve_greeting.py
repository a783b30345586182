"""The greeting: what a person reads, and the JSON that a program reads, as docs/start.md describes it."""

from __future__ import annotations

import io
import json
import re
import socket
import sys
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path

import pytest

from moldau.broker.cli.invocation import CommandError, Invocation, Terminal, load_config
from moldau.broker.cli.processes.ports import is_free
from moldau.broker.cli.serve import as_json, console_settings, first_record, greet, read_script, recovery_text
from moldau.broker.node.start_messages import StartReport, report_of
from moldau.broker.replicas.log_directories import OpeningResult
from moldau.broker.runtime.log_output import is_shown_when_quiet, write_log

DOCUMENT = Path(__file__).parents[4] / "docs" / "start.md"
CLEAN = OpeningResult(partitions=1, was_clean=True, damaged=0, checked_size=0, duration_ms=40)
CRASHED = OpeningResult(partitions=1_200, was_clean=False, damaged=2, checked_size=3 << 30, duration_ms=12_300)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def report(*overrides: str) -> StartReport:
    config = load_config(None, "/data", list(overrides), {})
    return report_of(config, "cluster", formatted=False, recovered=CLEAN, start_ms=230)


def shown(said: StartReport) -> str:
    stream = io.StringIO()
    greet(Terminal(stream, {}), said)
    return stream.getvalue()


def test_a_person_reads_a_few_lines_that_end_with_what_to_try() -> None:
    text = shown(report())
    assert 6 <= text.count("\n") <= 10
    for part in (
        "Moldau 0.1.0 serves (Apache Kafka 4.3.1, CPython",
        "1, broker and controller, of cluster cluster",
        "127.0.0.1:9092 (PLAINTEXT)",
        "/data",
        "moldau.http.listener",
        "1 partition of a node that was stopped cleanly, opened in 0.0 s; serving after 0.2 s",
        "-m pip install confluent-kafka && ",
        "{'bootstrap.servers': '127.0.0.1:9092'}",
        "Ctrl-C stops the node",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("base", "python"), [("/usr", "'/my shop/.venv/bin/python'"), ("/my shop/.venv", "python3")], ids=["venv", "none"]
)
def test_the_first_record_is_sent_from_the_environment_of_the_node(
    base: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/my shop/.venv")
    monkeypatch.setattr(sys, "base_prefix", base)
    monkeypatch.setattr(sys, "executable", "/my shop/.venv/bin/python")
    said = first_record("127.0.0.1:9092")
    assert said.startswith(f"{python} -m pip install confluent-kafka && {python} -c ")


def test_clients_are_shown_the_address_that_they_are_told() -> None:
    said = report("advertised.listeners=PLAINTEXT://kafka.example:19092", "moldau.http.listener=http://:9464")
    assert said.listeners == {"PLAINTEXT": "kafka.example:19092"}
    assert said.metrics == "http://127.0.0.1:9464/metrics"
    assert "{'bootstrap.servers': 'kafka.example:19092'}" in shown(said)


def test_what_was_found_is_told_with_its_duration() -> None:
    assert recovery_text(replace(report(), recovered=CRASHED)) == (
        "1,200 partitions after an unclean stop, 2 of them damaged and not served (see the log),"
        " 3.0 GiB checked in 12 s"
    )
    assert recovery_text(replace(report(), recovered=None)) == "no partitions"
    assert recovery_text(replace(report(), recovered=None, formatted=True)) == "new directories, formatted now"


def test_a_program_reads_one_line_of_json() -> None:
    line = as_json(replace(report(), recovered=CRASHED))
    said = json.loads(line)
    assert "\n" not in line and said["listeners"] == {"PLAINTEXT": "127.0.0.1:9092"} and said["metrics"] is None
    assert said["recovered"] == CRASHED._asdict()


def test_the_page_lists_every_field() -> None:
    text = DOCUMENT.read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [field.name for field in fields(StartReport)]
    assert all(f"`{name}`" in text for name in OpeningResult._fields)


def test_a_quiet_start_shows_warnings_and_progress_alone() -> None:
    import logging

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        show_all = write_log(Terminal(stream, {}), "text", is_quiet=True)
        logging.getLogger("moldau").info("detail")
        logging.getLogger("moldau").warning("doubt")
        logging.getLogger("moldau.progress").info("half")
        show_all()
        logging.getLogger("moldau").info("later")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert [line.rpartition(": ")[2] for line in stream.getvalue().splitlines()] == ["doubt", "half", "later"]
    assert is_shown_when_quiet(logging.makeLogRecord({"levelno": logging.ERROR, "name": "moldau"}))


def test_a_node_without_a_file_has_a_console_where_a_person_starts_it() -> None:
    def settings(*, is_terminal: bool = True, **given: object) -> dict[str, str]:
        arguments = Namespace(**{"file": None, "memory": False} | given)
        screen = Tty() if is_terminal else io.StringIO()
        return console_settings(arguments, Invocation(Terminal(io.StringIO(), {}), Terminal(screen, {}), {}))

    made = settings()
    assert made["moldau.console"] == "true"
    assert made["moldau.http.listener"].startswith("http://127.0.0.1:")
    config = load_config(None, "/data", ["moldau.http.listener=http://127.0.0.1:1"], {}, made)
    assert config.text("moldau.http.listener") == "http://127.0.0.1:1"
    assert report_of(config, "c", formatted=False, recovered=None, start_ms=1).console == "http://127.0.0.1:1/"
    assert settings(file="server.properties") == settings(memory=True) == settings(is_terminal=False) == {}


def test_a_script_of_faults_that_is_not_yaml_is_told(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("faults: [\n- a")
    with pytest.raises(CommandError, match=f"{file} is not YAML: .* line 2, column 1"):
        read_script(str(file))


def test_a_port_in_use_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not is_free("127.0.0.1", taken.getsockname()[1])
