"""The README keeps its promises: the block of Python runs as it stands there, and the page is one screen or two."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "README.md").read_text()


def block() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    return str(found)


def test_the_block_is_ten_lines() -> None:
    assert len([line for line in block().splitlines() if line]) == 10
    assert TEXT.count("\n") < 115


def test_every_file_that_it_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert links and all((ROOT / link).exists() for link in links if "://" not in link)


@pytest.mark.processes
def test_the_block_runs(tmp_path: Path) -> None:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    client, controller = (probe.getsockname()[1] for probe in probes)
    for probe in probes:
        probe.close()
    addresses = f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"
    command = [sys.executable, "-m", "moldau", "serve", "--data", str(tmp_path), "--greeting", "json"]
    node = subprocess.Popen(
        [*command, "--override", addresses], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert node.stdout is not None and json.loads(node.stdout.readline())["listeners"]
        program = block().replace("127.0.0.1:9092", f"127.0.0.1:{client}")
        said = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    finally:
        node.terminate()
        node.wait(20)
    assert said.splitlines() == ["0 Ada hello Ada", "1 Grace hello Grace", "2 Barbara hello Barbara"]
