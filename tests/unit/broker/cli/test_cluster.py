"""`moldau cluster`: what each node is told, what the output looks like, and three processes from start to stop."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.cli import cluster, main
from moldau.broker.cli.local_cluster import Layout, properties_text
from moldau.broker.config.loading import checked_config
from moldau.storage.checkpoints.java_properties import read_properties
from moldau.storage.files.local_files import LocalFiles
from moldau.testing.ports import free_ports

ROOT = Path(__file__).parents[4]


def test_three_nodes_are_voters_and_brokers_further_ones_brokers_only() -> None:
    layout = Layout("/d", 5, port=9000)
    configs = [checked_config(layout.properties(node_id)) for node_id in layout.node_ids]
    assert [config.is_controller for config in configs] == [True, True, True, False, False]
    assert all(config.is_broker for config in configs)
    assert {config.controller_quorum_voters for config in configs} == {configs[0].controller_quorum_voters}
    assert [voter.port for voter in configs[0].controller_quorum_voters] == [9005, 9006, 9007]
    assert layout.bootstrap == "127.0.0.1:9000,127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003,127.0.0.1:9004"
    bound = [each.port for config in configs for each in config.listeners]
    bound += [int(config.text("moldau.http.listener").rpartition(":")[2]) for config in configs]
    assert sorted(bound) == list(layout.ports)
    assert all(config.flag("moldau.console") for config in configs)


@pytest.mark.parametrize(("count", "voters", "replicas", "in_sync"), [(1, 1, 1, 1), (2, 1, 2, 1), (3, 3, 3, 2)])
def test_replicas_and_voters_follow_the_number_of_nodes(count: int, voters: int, replicas: int, in_sync: int) -> None:
    config = checked_config(Layout("/d", count).properties(1))
    assert len(config.controller_quorum_voters) == voters
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    for name in ("default", *internal):
        assert config.integer(f"{name}.replication.factor") == replicas
    for name in ("min.insync.replicas", *(f"{topic}.min.isr" for topic in internal[1:])):
        assert config.integer(name) == in_sync


def test_racks_go_round_and_overrides_win() -> None:
    layout = Layout("/d", 3, racks=("a", "b"), overrides={"num.partitions": "6"})
    configs = [checked_config(layout.properties(node_id)) for node_id in layout.node_ids]
    assert [config.text("broker.rack") for config in configs] == ["a", "b", "a"]
    assert {config.integer("num.partitions") for config in configs} == {6}


def test_clients_elsewhere_are_told_addresses_of_their_own() -> None:
    told = ("localhost:32768", "localhost:32769", "localhost:32770")
    layout = Layout("/d", 3, listen="0.0.0.0", advertised=told)
    configs = [checked_config(layout.properties(node_id)) for node_id in layout.node_ids]
    addresses = [{each.name: each for each in config.advertised_listeners} for config in configs]
    assert [f"{each['PLAINTEXT'].host}:{each['PLAINTEXT'].port}" for each in addresses] == list(told)
    assert layout.bootstrap == ",".join(told)
    assert {config.inter_broker_listener_name for config in configs} == {"BROKER"}
    assert {each["BROKER"].host for each in addresses} == {"127.0.0.1"}
    for config in configs:
        bound = {each.name: each.host for each in config.listeners}
        assert bound == {"PLAINTEXT": "0.0.0.0", "BROKER": "127.0.0.1", "CONTROLLER": "127.0.0.1"}
    ports = [each.port for config in configs for each in config.listeners]
    ports += [int(config.text("moldau.http.listener").rpartition(":")[2]) for config in configs]
    assert sorted(ports) == list(layout.ports)


def test_nodes_may_listen_elsewhere_than_where_clients_are_sent() -> None:
    config = checked_config(Layout("/d", 1, listen="0.0.0.0").properties(1))
    assert [(each.host, each.port) for each in config.advertised_listeners] == [("127.0.0.1", 9092)]
    assert {each.name: each.host for each in config.listeners} == {"PLAINTEXT": "0.0.0.0", "CONTROLLER": "127.0.0.1"}


def test_the_file_of_a_node_says_what_the_node_was_given() -> None:
    properties = Layout("/a\\b", 1, "::1").properties(1)
    assert read_properties(properties_text(properties)) == properties


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "0"], "--nodes takes 1 to 100"),
        (["--port", "65533"], "3 nodes need 9 ports from there on"),
        (["--advertise", "a:1,b:2"], "--advertise names 2 addresses for 3 nodes"),
        (["--override", "num.partitions"], "--override takes name=value"),
        (["--override", "num.partitions=0"], "the settings of node 1 cannot be used"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "--data", str(tmp_path / "data"), *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_directory_keeps_its_number_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for node_id in (1, 2):
        (tmp_path / f"node-{node_id}").mkdir()
    assert main(["cluster", "--data", str(tmp_path), "--nodes", "3"]) == 1
    assert "holds a cluster of 2: give --nodes 2" in capsys.readouterr().err
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    assert parser.parse_args(["--data", str(tmp_path)]).nodes is None


class Running:
    """A cluster of three in processes."""

    def __init__(self, data: Path, port: int) -> None:
        command = [sys.executable, "-m", "moldau.broker.cli", "cluster", "--data", str(data), "--port", str(port)]
        self.data = data
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def read_until(self, word: str) -> list[str]:
        read = []
        for line in self.lines():
            read.append(line)
            if word in line:
                return read
        raise AssertionError("".join(read))


@pytest.mark.processes
def test_three_processes_serve_and_stop_in_order_and_start_again(tmp_path: Path) -> None:
    port = free_ports(9)[0]
    running = Running(tmp_path / "data", port)
    try:
        assert any("formatted 3 nodes" in line for line in running.read_until("Ctrl-C stops all"))
        running.process.send_signal(signal.SIGINT)
        rest = list(running.lines())
        assert running.process.wait(10) == 0, "".join(rest)
    finally:
        running.process.kill()
    stopped = [line.split()[0] for line in rest if line.rstrip().endswith("moldau: stopped")]
    assert stopped == ["node-3", "node-2", "node-1"]
    assert len(list((tmp_path / "data").glob("node-*/data/.kafka_cleanshutdown"))) == 3

    running = Running(tmp_path / "data", port)
    try:
        assert not any("formatted" in line for line in running.read_until("Ctrl-C stops all"))
        running.process.send_signal(signal.SIGTERM)
        running.read_until("a second Ctrl-C kills them")
        running.process.send_signal(signal.SIGTERM)
        running.read_until("was ended by SIGKILL")
        assert running.process.wait(5) == 1
    finally:
        running.process.kill()


def test_taken_ports_and_a_directory_in_use_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_ports(9)[0]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        assert main(["cluster", "--data", str(tmp_path / "data"), "--port", str(port)]) == 1
    assert f"port {port + 1} is taken on 127.0.0.1" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    files = LocalFiles()
    (tmp_path / "data").mkdir()
    lock = files.lock(str(tmp_path / "data" / ".lock"))
    command = [
        sys.executable,
        "-m",
        "moldau.broker.cli",
        "cluster",
        "--data",
        str(tmp_path / "data"),
        "--port",
        str(port),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    lock.release()
    assert done.returncode == 1 and "a cluster runs in" in done.stderr
    assert not list((tmp_path / "data").glob("node-*"))


@pytest.mark.processes
def test_a_node_that_cannot_start_stops_the_others(tmp_path: Path) -> None:
    for node_id in (1, 2, 3):
        (tmp_path / "data" / f"node-{node_id}" / "data").mkdir(parents=True)
    lock = LocalFiles().lock(str(tmp_path / "data" / "node-2" / "data" / ".lock"))
    running = Running(tmp_path / "data", free_ports(9)[0])
    try:
        output, _ = running.process.communicate(timeout=30)
    finally:
        running.process.kill()
        lock.release()
    assert running.process.returncode == 1
    assert "node 2 has ended with status 1" in output


@pytest.mark.parametrize("port", ["0", "-1", "65528"])
def test_ports_that_there_are_not_are_refused(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "--data", str(tmp_path / "data"), "--port", port]) == 1
    told = f"moldau: --port {port}: it is 1 to 65527, because 3 nodes need 9 ports from there on\n"
    assert capsys.readouterr().err == told
