"""The page on Iceberg tables: its commands run against the directories of a node, then its Python; its metrics."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from moldau.broker.cli import main
from moldau.broker.cli.command import parser
from moldau.testing import Cluster

TEXT = (Path(__file__).parents[3] / "docs" / "lake.md").read_text("utf-8")
COMMANDS = [line.strip() for line in TEXT.splitlines() if line.startswith("    moldau follow-table ")]
SCHEMA = '{"type": "record", "name": "P", "fields": [{"name": "cents", "type": "long"}]}'


def words_of(command: str) -> list[str]:
    return shlex.split(command)[1:]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_accepted(command: str) -> None:
    arguments = parser(first_word="follow-table").parse_args(words_of(command))
    assert arguments.topic or arguments.topic_pattern


def test_the_metrics_are_those_of_the_follower() -> None:
    pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
    from moldau.lake.metrics import METRICS

    assert set(re.findall(r"`(moldau_table_\w+)`", TEXT)) == {name for name, _, _ in METRICS}


@pytest.mark.processes
def test_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
    pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(SCHEMA, "utf-8")
    monkeypatch.chdir(tmp_path)
    with Cluster(memory=False) as node:
        node.create_topic("orders", 2)
        node.create_topic("accounts", settings={"cleanup.policy": "compact"})
        node.create_topic("payments")
        for number in range(6):
            node.produce("orders", f"order {number}", key="customer", partition=number % 2)
            node.produce("accounts", None if number == 5 else f"{number}", key=f"{number % 3}")
        for value in (b"\0\0\0\0\7\x04", b"not framed"):
            node.produce("payments", value, key="k")
        assert node.directory is not None
        data = node.directory / "node-1"
        node.node(1).stop()
        (tmp_path / "data").symlink_to(data)
        for command in COMMANDS:
            if "--once" in command:
                assert main(words_of(command)) == 0, command
        for program in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
            exec(compile(program, "lake.md", "exec"), {})
        for command in re.findall(r"^    (moldau read .*)$", TEXT, re.MULTILINE):
            assert main(words_of(command)) == 0, command
    shown = capsys.readouterr().out
    assert "default.orders has all of orders: 6 rows added" in shown
    assert "default.accounts has all of accounts: 2 rows added" in shown
    assert "default.payments has all of payments: 1 row added" in shown
    assert '6 rows up to {"0": 3, "1": 3}' in shown
    assert "6 rows, of which the table has those before {0: 3, 1: 3}" in shown
