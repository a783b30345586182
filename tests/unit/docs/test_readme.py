"""The README keeps its promises: its programs run as they stand there, and the page is read in two minutes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench.front import FRONT_ROWS, GROUPS_MEASURED
from bench.groups import GROUPS
from bench.rows import ROWS

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()
TEST, PROGRAM = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SHOP = """
from confluent_kafka import Producer


def place_order(bootstrap_servers, topic):
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, "three rolls", key="ada")
    producer.flush()
"""
"""The application of the test that the page shows."""
LINES_MAX = 120
COLUMNS_MAX = 160


def test_the_page_is_short() -> None:
    assert TEXT.count("\n") <= LINES_MAX
    assert max(map(len, TEXT.splitlines())) <= COLUMNS_MAX


def test_every_file_that_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert links and all((ROOT / link).exists() for link in links if "://" not in link)


def test_every_target_of_make_that_it_names_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z-]+)`", TEXT)) | set(re.findall(r"^ +make ([a-z-]+)$", TEXT, re.MULTILINE))
    assert "run" in named and "test" in named
    assert [name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_chart_has_rows_of_the_bench_and_one_that_is_lost_may_be_among_them() -> None:
    groups = {row.name: row.group for row in ROWS}
    assert {groups[name] for name in FRONT_ROWS} == set(GROUPS_MEASURED) <= {group.name for group in GROUPS}


@pytest.mark.processes
def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TEST)
    (tmp_path / "shop.py").write_text(SHOP)
    command = [sys.executable, "-m", "pytest", "-p", "moldau.testing.plugin", "-p", "no:cacheprovider"]
    variables = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert len([line for line in TEST.splitlines() if line and not line.startswith("#")]) == 6


@pytest.mark.processes
def test_the_program_and_the_query_of_the_page_run(tmp_path: Path) -> None:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    client, controller = (probe.getsockname()[1] for probe in probes)
    for probe in probes:
        probe.close()
    addresses = f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"
    moldau = [sys.executable, "-m", "moldau"]
    node = subprocess.Popen(
        [*moldau, "serve", "--data", str(tmp_path), "--greeting", "json", "--override", addresses],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert node.stdout is not None and json.loads(node.stdout.readline())["listeners"]
        program = PROGRAM.replace("127.0.0.1:9092", f"127.0.0.1:{client}")
        said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    finally:
        node.terminate()
        node.wait(20)
    assert said.splitlines() == ["0 Ada hello Ada", "1 Grace hello Grace", "2 Barbara hello Barbara"]
    (query,) = re.findall(r"--sql '([^']+)'", TEXT)
    query = query.replace("orders", "greetings")
    rows = subprocess.check_output([*moldau, "read", "--path", str(tmp_path), "--sql", query], cwd=ROOT, text=True)
    assert "0" in rows and "3" in rows
