"""The image: which settings a container has, as Apache Kafka's image decides it."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

import pytest

from moldau.broker.cli import main
from moldau.broker.cli.container import HTTP_LISTENER, container_settings, load
from moldau.broker.cli.invocation import CommandError
from moldau.broker.config import image_variables
from moldau.broker.config.sources import setting_name

COMBINED = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT_HOST://0.0.0.0:9092,PLAINTEXT://:19092,CONTROLLER://:29093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
}
"""As in the examples of apache/kafka."""
PASSED_OVER = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_HEAP_OPTS": "-Xmx1G",
    "KAFKA_OPTS": "-Da=b",
    "KAFKA_JMX_PORT": "9999",
    "KAFKA_LOG4J_LOGGERS": "kafka=INFO",
    "PATH": "/bin",
}


def test_a_container_that_is_told_nothing_is_a_node_of_one_for_this_machine() -> None:
    config = load(container_settings({}, PASSED_OVER))
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)
    assert [(each.host, each.port) for each in config.advertised_listeners] == [("localhost", 9092)]
    assert [each.host for each in config.listeners] == ["", ""]
    assert config.warnings == ()


def test_variables_take_the_place_of_all_that() -> None:
    config = load(container_settings({}, COMBINED | PASSED_OVER))
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert {each.name: each.port for each in config.advertised_listeners} == {
        "PLAINTEXT_HOST": 9092,
        "PLAINTEXT": 19092,
    }
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.controller_quorum_voters[0].port == 29093
    assert config.text(HTTP_LISTENER) == "http://0.0.0.0:9464"
    assert config.warnings == ()


def test_variables_win_over_a_mounted_file() -> None:
    file = {"node.id": "1", "num.partitions": "5", "log.retention.hours": "7"}
    settings = container_settings(file, {"KAFKA_NUM_PARTITIONS": "6"})
    assert settings == {HTTP_LISTENER: "http://0.0.0.0:9464"} | file | {"num.partitions": "6"}


def test_where_health_listens_is_no_reason_to_forget_the_rest() -> None:
    settings = container_settings({}, {"KAFKA_MOLDAU_HTTP_LISTENER": "http://127.0.0.1:1"})
    assert settings[HTTP_LISTENER] == "http://127.0.0.1:1" and settings["node.id"] == "1"


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n")
    assert main(["container", "--config", str(file)]) == 1
    assert 'Missing required configuration "process.roles"' in capsys.readouterr().err


def test_a_password_that_is_not_utf_8_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_bytes(b"\xff")
    monkeypatch.setattr(image_variables, "SECRETS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("KAFKA_SSL_KEYSTORE_CREDENTIALS", "password")
    assert main(["container", "--config", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == "moldau: a file of a KAFKA_SSL_*_CREDENTIALS variable is not UTF-8\n"


def test_nobody_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert main(["health", f"http://127.0.0.1:{port}"]) == 1
    assert "no node answers" in capsys.readouterr().err


def test_a_node_that_listens_on_every_address_of_ipv6_is_asked_there(capsys: pytest.CaptureFixture[str]) -> None:
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6")

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready")

    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        node = Thread(target=answer, daemon=True)
        node.start()
        assert main(["health", f"http://[::]:{listener.getsockname()[1]}"]) == 0
        node.join()
    assert capsys.readouterr().out == "ready\n"


def test_a_variable_that_names_no_setting_leaves_the_node_of_one_as_it_is() -> None:
    assert container_settings({}, {"KAFKA_LIB": "/opt/kafka-lib"}) == container_settings({}, {})


def test_the_variables_of_a_broker_with_zookeeper_are_those_of_a_node_of_one() -> None:
    variables = {
        "KAFKA_BROKER_ID": "7",
        "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:32768,BROKER://172.17.0.2:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    }
    config = load(container_settings({}, variables))
    assert (config.node_id, config.is_broker, config.is_controller) == (7, True, True)
    assert {each.name: each.port for each in config.listeners} == {
        "PLAINTEXT": 9093,
        "BROKER": 9092,
        "CONTROLLER": 9094,
    }
    assert [each.port for each in config.advertised_listeners] == [32768, 9092]
    with pytest.raises(CommandError):
        load(container_settings({}, {**variables, "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181"}))


def test_directories_are_formatted_without_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path))
    for name, value in COMBINED.items():
        if name != "KAFKA_LOG_DIRS":
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLUSTER_ID", raising=False)
    credential = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    for cluster_id in ("4L6g3nShT-eMCtK--X86sw", "MkU3OEVBNTcwNTJENDM2Qk"):
        arguments = ["-t", cluster_id, "--ignore-formatted", "--add-scram", credential]
        assert main(["container", "--format", *arguments, "-c", str(tmp_path / "missing")]) == 0
    assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in (tmp_path / "meta.properties").read_text()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("KAFKA_NUM_PARTITIONS", "3"), ("KAFKA_MOLDAU_CONSOLE", "true"), ("KAFKA_NODE_ID", "7"), ("KAFKA_LOG_DIRS", "/d")],
)
def test_one_variable_completes_a_node_of_one(variable: str, value: str) -> None:
    settings = container_settings({}, {variable: value})
    assert settings == container_settings({}, {}) | {setting_name(variable): value}
    assert load(settings).warnings == ()


def test_listeners_of_clients_alone_get_a_controller() -> None:
    config = load(container_settings({}, {"KAFKA_LISTENERS": "PLAINTEXT://:29092"}))
    assert {each.name: each.port for each in config.listeners} == {"PLAINTEXT": 29092, "CONTROLLER": 29093}
    assert [each.port for each in config.advertised_listeners] == [29092]
    both = load(container_settings({}, {"KAFKA_LISTENERS": "PLAINTEXT://:1092,CONTROLLER://:9093"}))
    assert {each.name: each.port for each in both.listeners} == {"PLAINTEXT": 1092, "CONTROLLER": 9093}


@pytest.mark.parametrize("variable", ["KAFKA_PROCESS_ROLES", "KAFKA_CONTROLLER_QUORUM_VOTERS"])
def test_a_node_of_a_cluster_is_not_completed(variable: str) -> None:
    assert container_settings({}, {variable: "x"}).keys() == {HTTP_LISTENER, setting_name(variable)}


def test_the_command_warns_once_and_takes_variables_of_other_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "ALLOW_PLAINTEXT_LISTENER": "yes",
        "KAFKA_CFG_LOG_DIRS": str(tmp_path),
        "KAFKA_CFG_NODE_ID": "0",
        "KAFKA_KRAFT_CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CLUSTER_ID", raising=False)
    assert main(["container", "--format", "-c", str(tmp_path / "missing")]) == 0
    written = (tmp_path / "meta.properties").read_text()
    assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in written and "node.id=0" in written
    monkeypatch.setenv("KAFKA_SSL_KEY_CREDENTIALS", "no-such-file")
    assert main(["container", "--format", "-c", str(tmp_path / "missing")]) == 1
    assert "/etc/kafka/secrets/no-such-file cannot be read: No such file" in capsys.readouterr().err
