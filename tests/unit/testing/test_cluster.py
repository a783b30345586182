"""Clusters of processes, as a test of a user has them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.testing import Cluster, NodeFailed
from moldau.testing.ports import HOST, PORTS, free_ports

pytestmark = pytest.mark.processes


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def one() -> Iterator[Cluster]:
    """A node in memory."""
    with Cluster() as kafka:
        yield kafka


def test_one_node_is_in_memory_on_a_port_below_those_of_connections(one: Cluster) -> None:
    assert one.directory is None
    host, _, port = one.bootstrap_servers.rpartition(":")
    assert host == HOST and int(port) in PORTS
    assert one.node(1).greeting["listeners"] == {"PLAINTEXT": one.bootstrap_servers}
    assert one.node(1).greeting["data"] == ["/memory"]


def test_the_log_of_a_node_has_no_file(one: Cluster) -> None:
    assert "node 1 of cluster" in one.node(1).log
    position = one.node(1).log_size
    assert one.node(1).log_since(position) == ""
    assert one.node(1).log_since(0, lines=1).count("\n") == 0


def test_ids_of_nodes_begin_at_1(one: Cluster) -> None:
    for node_id in (0, 2):
        with pytest.raises(ValueError, match="the ids are 1 to 1"):
            one.node(node_id)


def test_the_end_of_the_block_ends_the_node() -> None:
    with Cluster() as kafka:
        pid = kafka.node(1).pid
        assert is_alive(pid)
    assert not is_alive(pid)
    with pytest.raises(RuntimeError, match="does not run"):
        kafka.topics()


def test_nodes_end_although_the_client_does_not_close() -> None:
    class StuckClient:
        def close(self) -> None:
            raise TimeoutError("the client waits for a node")

    cluster = Cluster().start()
    pid = cluster.node(1).pid
    cluster._client = StuckClient()  # type: ignore[assignment]
    with pytest.raises(TimeoutError, match="the client waits"):
        cluster.stop()
    assert not is_alive(pid)
    cluster.stop()


def test_a_cluster_may_be_started_again_and_stopped_twice() -> None:
    kafka = Cluster()
    with kafka:
        kafka.create_topic("t")
        with pytest.raises(RuntimeError, match="runs already"):
            kafka.start()
        kafka.stop()
        kafka.start()
        assert kafka.topics() == []
    kafka.stop()


def test_a_fixed_port_is_taken_or_refused() -> None:
    with socket.create_server((HOST, 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(NodeFailed, match=f"port {port} is taken"):
            Cluster(port=port).start()
    with Cluster(port=port) as kafka:
        assert kafka.bootstrap_servers == f"{HOST}:{port}"


def test_a_port_that_is_taken_meanwhile_is_tried_again_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as holder, socket.create_server((HOST, 0)) as other:
        taken = [each.getsockname()[1] for each in (holder, other)]
        free = free_ports(4)
        given = [free[:2] + taken, free]
        monkeypatch.setattr("moldau.testing.settings.free_ports", lambda count: given.pop(0))
        with Cluster() as kafka:
            assert kafka.bootstrap_servers == f"{HOST}:{free[3]}"
    assert not given


def test_a_setting_that_the_node_refuses_is_told_with_its_log() -> None:
    with pytest.raises(NodeFailed, match=r"(?s)node 1 ended with status 1.*num\.partitions"):
        Cluster(settings={"num.partitions": "many"}).start()


def test_settings_reach_the_nodes() -> None:
    with Cluster(settings={"auto.create.topics.enable": False, "num.partitions": 3}) as kafka:
        assert kafka.topics() == []
        with pytest.raises(Exception, match=r"UNKNOWN_TOPIC|Unknown topic"):
            kafka.produce("absent", "x")


def test_three_nodes_survive_the_end_of_one() -> None:
    with Cluster(3) as kafka:
        directory = kafka.directory
        assert directory is not None and sorted(path.name for path in directory.glob("node-?")) == [
            f"node-{number}" for number in (1, 2, 3)
        ]
        kafka.create_topic("t", partitions=3)
        for number in range(3):
            kafka.produce("t", f"before {number}", partition=number)
        kafka.node(2).kill()
        assert not kafka.node(2).is_running
        kafka.produce("t", "without the second", partition=1)
        kafka.node(2).restart()
        kafka.node(3).stop()
        assert len(kafka.records("t", 4)) == 4
        pids = [kafka.node(number).pid for number in (1, 2)]
    assert not any(map(is_alive, pids)) and not directory.exists()


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(NodeFailed, match="Moldau does not run on Windows: run the tests in a container, or in WSL"):
        Cluster().start()


def test_a_paused_node_answers_after_it_is_resumed() -> None:
    with Cluster() as kafka:
        kafka.create_topic("t")
        kafka.node(1).pause()
        kafka.node(1).pause()
        state = Path(f"/proc/{kafka.node(1).pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "T" and kafka.node(1).is_running
        kafka.node(1).resume()
        kafka.produce("t", "x")
        kafka.node(1).pause()
    assert kafka.nodes == []


def test_a_node_in_memory_comes_back_empty() -> None:
    with Cluster() as kafka:
        kafka.create_topic("t")
        first = kafka.node(1).pid
        kafka.node(1).restart()
        assert kafka.node(1).pid != first and kafka.topics() == []
        kafka.node(1).kill()
        with pytest.raises(NodeFailed, match="node 1 does not run"):
            kafka.node(1).pause()


def test_data_and_logs_are_kept_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOLDAU_KEEP", "1")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Cluster() as kafka:
        kafka.produce("t", "x")
        directory = kafka.directory
    assert directory is not None and f"kept in {directory}" in capfd.readouterr().err
    assert "stopped" in (directory / "node-1.log").read_text()
    assert (directory / "node-1" / "t-0").is_dir()


def test_several_nodes_in_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="votes"):
        Cluster(3, memory=True)
    with pytest.raises(ValueError, match="at least one"):
        Cluster(0)


def test_variables_of_the_test_are_not_settings_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with Cluster() as kafka:
        variables = Path(f"/proc/{kafka.node(1).pid}/environ").read_bytes()
    assert b"KAFKA_LISTENERS" not in variables and b"PYTHONWARNINGS" not in variables
    assert os.environ["KAFKA_LISTENERS"]
