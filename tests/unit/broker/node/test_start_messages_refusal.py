"""A node that cannot start: one line that names the remedy, and a status that is not 0."""

from __future__ import annotations

import errno
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.cli.invocation import load_config
from moldau.broker.metadata.quorum_start import UnsupportedFeatures
from moldau.broker.node.start_messages import refusal_line
from moldau.testing.ports import free_ports

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "moldau.broker.cli"]


def listeners(*ports: int) -> list[str]:
    client, controller = ports or free_ports(2)
    return ["--override", f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"]


def refused(*arguments: str) -> str:
    """The one line in which `moldau serve` says why it ends."""
    done = subprocess.run([*COMMAND, "serve", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "FATAL" in line]
    return line


@pytest.fixture
def node(tmp_path: Path) -> Iterator[int]:
    """A node that serves from `tmp_path/first`; the port of its controller."""
    ports = free_ports(2)
    command = [*COMMAND, "serve", "--data", str(tmp_path / "first"), *listeners(*ports), "--greeting", "json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield ports[1]
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.processes
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("--data", str(tmp_path), *listeners(port, free_ports(1)[0]))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in line
    assert "--override listeners=PLAINTEXT://127.0.0.1:" in line and list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_a_port_that_is_taken_is_found_before_a_directory_is_formatted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("--data", str(tmp_path / "data"), "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in line and not (tmp_path / "data").exists()
    (other,) = re.findall(r"choose another: --port (\d+)$", line)
    assert abs(int(other) - port) == 10_000


@pytest.mark.processes
def test_the_port_of_the_metrics_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"moldau.http.listener=http://127.0.0.1:{taken.getsockname()[1]}"
        line = refused("--data", str(tmp_path), *listeners(), "--override", address)
    assert "set moldau.http.listener to another one" in line


@pytest.mark.processes
def test_a_directory_that_another_process_serves(tmp_path: Path, node: int) -> None:
    line = refused("--data", str(tmp_path / "first"), *listeners())
    assert f"another process serves {tmp_path / 'first'}. Stop that process" in line


@pytest.mark.processes
def test_a_directory_of_another_cluster(tmp_path: Path, node: int) -> None:
    """The controllers refuse the node, which would wait for them for ever."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{node}\nlog.dirs={tmp_path}/second\n"
        f"listeners=PLAINTEXT://127.0.0.1:{free_ports(1)[0]}\n"
    )
    cluster_id = "5L6g3nShT-eMCtK--X86sw"
    subprocess.run([*COMMAND, "format", "-c", str(file), "-t", cluster_id], cwd=ROOT, check=True, capture_output=True)
    line = refused(str(file))
    assert "belong to another cluster" in line and cluster_id in line and "moldau format --cluster-id" in line


@pytest.mark.processes
def test_a_directory_of_another_cluster_than_the_one_that_is_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    subprocess.run([*COMMAND, "format", "--data", str(data)], cwd=ROOT, check=True, capture_output=True)
    line = refused("--data", str(data), *listeners(), "--cluster-id", "5L6g3nShT-eMCtK--X86sw")
    assert f"{data} belongs to cluster " in line and line.endswith(", not to that of --cluster-id")


@pytest.mark.processes
def test_a_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = refused("--data", str(tmp_path / "file" / "data"), *listeners())
    assert f"{tmp_path / 'file'}: " in line and "Choose a directory" in line


@pytest.mark.processes
def test_directories_of_two_clusters(tmp_path: Path) -> None:
    directories = []
    for name in ("a", "b"):
        file = tmp_path / f"{name}.properties"
        file.write_text(
            "process.roles=broker\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:1\nlog.dirs={tmp_path}/{name}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{free_ports(1)[0]}\n"
        )
        cluster_id = f"{name}L6g3nShT-eMCtK--X86sw"
        command = [*COMMAND, "format", "-c", str(file), "-t", cluster_id]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        directories.append(f"{tmp_path}/{name}")
    line = refused(str(file), "--override", f"log.dirs={','.join(directories)}")
    assert "belongs to cluster bL6g3nShT" in line and "Leave out of log.dirs" in line


@pytest.mark.processes
def test_a_directory_of_another_node(tmp_path: Path, node: int) -> None:
    line = refused("--data", str(tmp_path / "first"), "--override", "node.id=7", *listeners())
    assert "belongs to node 1" in line and "Set node.id=1" in line


@pytest.mark.processes
def test_a_directory_that_the_node_may_not_write(tmp_path: Path) -> None:
    """Not even root makes a directory there."""
    line = refused("--data", "/sys/moldau", *listeners())
    assert "/sys/moldau: " in line and "The node must be able to write there" in line


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "/data/x: Permission denied. The node must"),
        (PermissionError(errno.EACCES, "cannot listen on *:80: Permission denied"), "Ports below 1024 need privileges"),
        (OSError(errno.EADDRNOTAVAIL, "cannot listen on 10.0.0.1:9092: no"), "Name an address of this machine"),
        (OSError(errno.ENOSPC, "No space left on device", "/data"), "/data: No space left on device. Make room"),
        (OSError(errno.EIO, "Input/output error", "/data"), "/data: Input/output error"),
        (ValueError("the file is damaged"), "the file is damaged"),
        (UnsupportedFeatures({"metadata.version": 21}), "upgrade --release-version 4.0, then stop"),
        (UnsupportedFeatures({"metadata.version": 34}), "downgrade --feature metadata.version=33, then stop"),
        (UnsupportedFeatures({"group.version": 2}), "group.version is finalized at level 2"),
        (
            UnsupportedFeatures({"share.version": 1, "made.up": 2}),
            "run kafka-features.sh --bootstrap-server HOST:PORT downgrade --feature made.up=0 --feature share.version=",
        ),
    ],
)
def test_the_line_ends_with_the_remedy_where_there_is_a_usual_one(problem: Exception, text: str) -> None:
    assert text in refusal_line(problem, load_config(None, None, [], {}))
