"""What each process of a machine is told: ids, ports, directories, rack; and which configurations cannot be several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moldau.broker.cli import main
from moldau.broker.cli.invocation import CommandError
from moldau.broker.cli.processes.core import ProcessInput, read_process_input
from moldau.broker.cli.processes.cores import Machine, property_difference
from moldau.broker.cli.processes.machine import cores_with_directories, machine_of, remove_directories
from moldau.broker.config.config import Config
from moldau.broker.config.loading import checked_config
from moldau.broker.config.sources import single_node_defaults
from moldau.broker.runtime.place import MachineProcesses, core_directory, core_numbers_in
from moldau.testing.ports import free_ports

CLUSTER_ID, OTHER_CLUSTER_ID = "vJ2tYzvfRWa7zGbXzCxUgw", "85RUDo6WbEW0d3SRE0Z_GQ"
FILE = {
    "process.roles": "broker,controller",
    "node.id": "11",
    "controller.quorum.voters": "11@10.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://10.0.0.1:9093,TLS://[::1]:9094",
    "advertised.listeners": "PLAINTEXT://kafka.example.org:19092,TLS://[::1]:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/a,/b",
    "metadata.log.dir": "/m",
    "moldau.http.listener": "http://127.0.0.1:9097",
    "moldau.console": "true",
    "moldau.audit.log.file": "/var/log/audit.log",
}


def machine(count: int, **changes: str) -> Machine:
    config = checked_config(FILE | {name.replace("_", "."): text for name, text in changes.items()})
    return Machine(config, "host-7", tuple(range(1, count + 1)))


def test_the_first_process_is_the_node_that_the_file_describes() -> None:
    first = machine(3).checked_config(1)
    as_written = checked_config(FILE)
    for name in ("node_id", "listeners", "advertised_listeners", "process_roles", "log_dirs", "metadata_log_dir"):
        assert getattr(first, name) == getattr(as_written, name)
    assert first.text("moldau.http.listener") == "http://127.0.0.1:9097"
    assert first.flag("moldau.console")


def test_further_processes_are_brokers_of_the_next_ids_and_ports_that_are_free() -> None:
    configs = [machine(3).checked_config(core) for core in (1, 2, 3)]
    assert [each.node_id for each in configs] == [11, 12, 13]
    assert [(each.is_broker, each.is_controller) for each in configs] == [(True, True), (True, False), (True, False)]
    bound = [{each.name: (each.host, each.port) for each in config.broker_listeners} for config in configs]
    assert bound == [
        {"PLAINTEXT": ("", 9092), "TLS": ("::1", 9094)},
        {"PLAINTEXT": ("", 9095), "TLS": ("::1", 9096)},
        {"PLAINTEXT": ("", 9098), "TLS": ("::1", 9099)},  # 9097 is that of the metrics.
    ]
    told = [{each.name: (each.host, each.port) for each in config.advertised_listeners} for config in configs]
    assert [each["PLAINTEXT"] for each in told] == [
        ("kafka.example.org", 19092),
        ("kafka.example.org", 19095),
        ("kafka.example.org", 19098),
    ]
    assert [each["TLS"] for each in told] == [each["TLS"] for each in bound]


def test_the_ports_of_a_process_do_not_depend_on_how_many_there_are() -> None:
    assert machine(2).checked_config(2).listeners == machine(9).checked_config(2).listeners


def test_directories_lie_in_those_of_the_file_and_the_console_is_in_one_process() -> None:
    second = machine(2).checked_config(2)
    assert second.log_dirs == ("/a/core.2", "/b/core.2")
    assert second.metadata_log_dir == "/m/core.2"
    assert second.text("moldau.audit.log.file") == "/var/log/core.2.audit.log"
    assert second.text_or_none("moldau.http.listener") is None
    assert not second.flag("moldau.console")


def test_the_rack_is_the_machine_unless_it_is_set_and_replicas_do_not_share_it() -> None:
    assert {machine(2).checked_config(core).text("broker.rack") for core in (1, 2)} == {"host-7"}
    assert {machine(2, broker_rack="zone-b").checked_config(core).text("broker.rack") for core in (1, 2)} == {"zone-b"}
    assert not machine(2).checked_config(1).flag("moldau.replicas.share.rack")
    assert machine(2, moldau_replicas_share_rack="true").checked_config(1).flag("moldau.replicas.share.rack")


def test_a_node_without_a_file_becomes_several_with_one_replica_of_internal_topics() -> None:
    several = Machine(checked_config(single_node_defaults("/d")), "host-7", (1, 2, 3))
    configs = [several.checked_config(core) for core in (1, 2, 3)]
    assert [config.broker_listeners[0].port for config in configs] == [9092, 9094, 9095]
    assert {config.integer("offsets.topic.replication.factor") for config in configs} == {1}


def test_further_processes_find_the_quorum_at_the_first_one() -> None:
    """Also if the file names an address that only the first one could do without."""
    moved = single_node_defaults("/d") | {"listeners": "PLAINTEXT://:19092,CONTROLLER://:19093"}
    second = Machine(checked_config(moved), "host-7", (1, 2)).checked_config(2)
    assert second.controller_quorum_bootstrap_servers == ("127.0.0.1:19093", "127.0.0.1:9093")
    same = Machine(checked_config(single_node_defaults("/d")), "host-7", (1, 2)).checked_config(2)
    assert same.controller_quorum_bootstrap_servers == ("127.0.0.1:9093",)
    assert (
        machine(2).checked_config(2).controller_quorum_voters == machine(2).checked_config(1).controller_quorum_voters
    )
    assert not machine(2).checked_config(2).controller_quorum_bootstrap_servers


def test_passwords_reach_each_process_and_are_no_difference() -> None:
    several = machine(2, ssl_keystore_password="secret")
    assert several.checked_config(2).settings.password("ssl.keystore.password") == several.config.settings.password(
        "ssl.keystore.password"
    )
    given, left_out = property_difference(several, 2)
    assert "ssl.keystore.password" not in given
    assert left_out == ("moldau.http.listener", "moldau.console")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"controller_quorum_voters": "11@10.0.0.1:9093,12@10.0.0.2:9093,21@10.0.0.3:9093"},
            "12 is a voter of another",
        ),
        ({"listeners": "PLAINTEXT://:65535,CONTROLLER://10.0.0.1:9093"}, "PLAINTEXT would need port 65536"),
        ({"listeners": "PLAINTEXT://:0,CONTROLLER://10.0.0.1:9093"}, "each listener needs a port"),
        ({"moldau_emulated_release": "3.9"}, "moldau.emulated.release is for a single node"),
    ],
)
def test_what_cannot_be_several_processes_is_refused(changes: dict[str, str], said: str) -> None:
    without_tls = {"advertised_listeners": "PLAINTEXT://kafka.example.org:19092", "moldau_cores": "3"}
    config = machine(1, **(without_tls | changes)).config
    with pytest.raises(CommandError, match=said):
        machine_of(config, "host-7")


def test_factors_that_one_machine_cannot_have_are_told_and_so_are_too_many_processes() -> None:
    alone = list(machine(2).warnings(2))
    assert [each.split(" is ")[0] for each in alone] == [
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
    ]
    others = "11@10.0.0.1:9093,21@10.0.0.2:9093,31@10.0.0.3:9093"
    assert not list(machine(2, controller_quorum_voters=others).warnings(None))
    assert not list(machine(2, moldau_replicas_share_rack="true").warnings(2))
    ready = Machine(checked_config(single_node_defaults("/d")), "host-7", (1, 2, 3))
    assert list(ready.warnings(2)) == ["3 processes run on 2 cores: more processes than cores make nothing faster"]


def test_a_controller_alone_has_one_process() -> None:
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@a:9093",
        "log.dirs": "/d",
        "moldau.cores": "2",
    }
    with pytest.raises(CommandError, match="a controller alone"):
        machine_of(checked_config(settings), "host-7")


def test_orders_are_read_as_they_were_written() -> None:
    orders = ProcessInput(
        {"node.id": "2", "text": "a\nb"}, MachineProcesses((1, 2, 3), "/tmp/s", (1, 2)), is_quiet=True
    )
    line = orders.as_line()
    assert line.count(b"\n") == 1
    assert read_process_input(line) == orders


# Directories


def test_directories_of_processes_are_told_from_those_of_partitions() -> None:
    assert core_numbers_in(
        ["core.2", "core.10", "core-2", "core.1", "core.02", "core.2-0", "xcore.3", "core.", "t-0"]
    ) == [
        2,
        10,
    ]
    assert core_directory("/d", 1) == "/d" and core_directory("/d", 3) == "/d/core.3"


def config_at(directory: Path, **changes: str) -> Config:
    named = {name.replace("_", "."): text for name, text in changes.items()}
    return checked_config(single_node_defaults(str(directory)) | named)


def test_processes_that_have_a_directory_run_until_they_have_left(tmp_path: Path) -> None:
    for core in (2, 4):
        (tmp_path / f"core.{core}").mkdir()
    assert cores_with_directories(config_at(tmp_path)) == {2, 4}
    assert machine_of(config_at(tmp_path, moldau_cores="3"), "h").cores == (1, 2, 3, 4)
    assert cores_with_directories(config_at(tmp_path / "new")) == set()


def test_a_directory_with_a_partition_stays(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    (tmp_path / "orders-0").mkdir()
    assert remove_directories(config) == f"{tmp_path} stays, because there are partitions in it"
    (tmp_path / "orders-0").rename(tmp_path / f"orders-0.{'a' * 32}-delete")
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert remove_directories(config) == f"removed {tmp_path}"
    assert not tmp_path.exists()


@pytest.mark.processes
def test_one_process_does_not_serve_the_directories_of_several(tmp_path: Path) -> None:
    (tmp_path / "core.2").mkdir()
    words = ["serve", "--data", str(tmp_path), "--port", str(free_ports(1)[0])]
    done = subprocess.run([sys.executable, "-m", "moldau", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"{tmp_path} holds 2 broker processes: give --cores 2" in done.stderr


def test_what_each_process_gets_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "core.3").mkdir()
    assert main(["serve", "--data", str(tmp_path), "--cores", "2", "--print-cores"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "# process 3, node 3, which leaves the cluster" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:9094" in lines and f"log.dirs={tmp_path}/core.2" in lines


def test_there_are_at_most_so_many_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--cores", "257"]) == 1
    assert "moldau.cores takes int, at least 1, at most 256" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--memory"], ["--control", "127.0.0.1:0"]])
def test_what_is_for_tests_runs_in_one_process(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--cores", "2", *option]) == 1
    assert "--memory and --control are for one process" in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_before_anything_is_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    port = free_ports(3)[0]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        assert main(["serve", "--data", str(tmp_path / "d"), "--port", str(port), "--cores", "2"]) == 1
    assert f"cannot listen on 127.0.0.1:{port + 1}, which is PLAINTEXT of process 2" in capsys.readouterr().err
    assert not (tmp_path / "d" / "meta.properties").exists()


def test_directories_of_another_cluster_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n")
    port = free_ports(3)[0]
    words = ["serve", "--data", str(tmp_path), "--port", str(port), "--cores", "2", "--cluster-id", OTHER_CLUSTER_ID]
    assert main(words) == 1
    told = f"{tmp_path} belongs to cluster {CLUSTER_ID}, not to that of --cluster-id"
    assert told in capsys.readouterr().err and not (tmp_path / "core.2").exists()


def test_a_file_whose_directories_are_not_formatted_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_ports(3)[0]
    file = tmp_path / "server.properties"
    text = single_node_defaults(str(tmp_path / "d")) | {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 2}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + 2}",
        "moldau.cores": "2",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in text.items()))
    assert main(["serve", str(file)]) == 1
    assert "not formatted. First run `moldau format -c`" in capsys.readouterr().err
