"""The process: it serves until it is told to stop, and says in one line why it cannot start."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.testing.ports import free_ports

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[4]


def start(data: Path) -> subprocess.Popen[str]:
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{free_ports(1)[0]},CONTROLLER://127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(data), "--override", listeners]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError("".join(lines))


def test_a_node_stops_cleanly_when_told_and_names_the_damage_that_keeps_it_from_starting(tmp_path: Path) -> None:
    process = start(tmp_path)
    read_until(process, "serves")
    process.send_signal(signal.SIGTERM)
    read_until(process, "stopped")
    assert process.wait(10) == 0
    (mark,) = tmp_path.glob("**/.kafka_cleanshutdown")
    mark.unlink()
    (metadata,) = tmp_path.glob("**/__cluster_metadata-0")
    metadata.rename(tmp_path / "away")
    metadata.touch()
    process = start(tmp_path)
    try:
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "the node cannot start" in errors and "Traceback" not in errors, errors


def test_a_node_that_crashes_leaves_no_core_file(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        read_until(process, "serves")
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        (line,) = (each for each in limits.splitlines() if each.startswith("Max core file size"))
        assert line.split()[4] == ("0" if line.split()[5] == "0" else "1")
        process.send_signal(signal.SIGABRT)
        _, status = os.waitpid(process.pid, 0)
    finally:
        process.kill()
    assert os.WTERMSIG(status) == signal.SIGABRT and not os.WCOREDUMP(status)


def test_a_node_that_waits_for_its_peers_can_be_stopped(tmp_path: Path) -> None:
    ports = free_ports(3)
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@127.0.0.1:{ports[0]},2@127.0.0.1:{ports[1]}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[2]},CONTROLLER://127.0.0.1:{ports[0]}\n"
        f"log.dirs={tmp_path}/data\n"
    )
    command = [sys.executable, "-m", "moldau.broker.cli"]
    subprocess.run([*command, "format", "-c", str(file)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*command, "serve", str(file)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    read_until(process, "ends at offset")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "before the node served" in errors and "Traceback" not in errors, errors


def test_a_terminal_is_greeted_and_told_what_ctrl_c_does(tmp_path: Path) -> None:
    """Until the node serves, a person sees no detail of the log."""
    ours, theirs = pty.openpty()
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{free_ports(1)[0]},CONTROLLER://127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(tmp_path), "--override", listeners]
    process = subprocess.Popen(command, cwd=ROOT, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    with open(ours, encoding="utf-8") as terminal:
        seen = [terminal.readline()]
        while "Ctrl-C" not in seen[-1]:
            seen.append(terminal.readline())
        process.send_signal(signal.SIGINT)
        farewell = terminal.readline()
        assert process.wait(10) == 0
    assert "Moldau" in seen[0] and "serves" in seen[0] and not any("INFO" in line for line in seen)
    assert "stopping on SIGINT: leadership is handed over" in farewell and "Ctrl-C" in farewell


def test_a_second_ctrl_c_ends_a_node_at_once(tmp_path: Path) -> None:
    process = start(tmp_path)
    read_until(process, "serves")
    process.send_signal(signal.SIGINT)
    read_until(process, "stopping on SIGINT")
    process.send_signal(signal.SIGINT)
    assert process.wait(10) in (-signal.SIGINT, 0)


def test_a_node_that_serves_has_loaded_its_whole_hot_path() -> None:
    """The extension modules of a checkout may be exchanged beside it."""
    program = (
        "import sys; from building.hot_path import COMPILED_SOURCES, FOR_TABLES;"
        " import moldau.broker.node.main, moldau.broker.node.node;"
        " moldau.broker.node.main.load_hot_path();"
        " left = [n for n in COMPILED_SOURCES if n.rpartition('.')[0].replace('/', '.') not in sys.modules];"
        " print([n for n in left if n not in FOR_TABLES])"
    )
    left_out = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    assert left_out == "[]\n"
