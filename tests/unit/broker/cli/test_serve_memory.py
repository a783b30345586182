"""`moldau serve --memory`: a node whose files are all in memory, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from moldau.broker.cli.invocation import CommandError
from moldau.broker.cli.serve import formatting, free_ports, own_settings
from moldau.broker.node.main import Formatting

RECORDS = 200


def opened_by(pid: int) -> Iterator[Path]:
    """What the descriptors of a process are; one that it closes meanwhile is left out."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield link.readlink()


def shared(bootstrap: str) -> list[bytes]:
    """What a share group gets of the records."""
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ConfigResource.Type.GROUP, "s", incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([group]).values():
        altered.result(20)
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "s"})
    consumer.subscribe(["t"])
    read: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(read) < RECORDS and time.monotonic() < deadline:
        read += [message.value() or b"" for message in consumer.poll(1) if message.error() is None]
    consumer.close()
    return read


@pytest.mark.processes
def test_a_node_in_memory_serves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--memory", "--port", "0", "--greeting", "json"]
    node = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        bootstrap = json.loads(node.stdout.readline())["listeners"]["PLAINTEXT"]
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
        producer.init_transactions(20)
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce("t", str(number))
        producer.commit_transaction(20)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        read: list[bytes] = []
        while len(read) < RECORDS:
            messages = consumer.consume(RECORDS, 10)
            assert messages, f"{len(read)} of {RECORDS} records"
            read += [message.value() or b"" for message in messages if message.error() is None]
        consumer.close()
        assert read == [str(number).encode() for number in range(RECORDS)]
        assert sorted(shared(bootstrap)) == sorted(read)
        assert not [path for path in opened_by(node.pid) if path.is_relative_to(tmp_path) or path.suffix == ".log"]
        node.send_signal(signal.SIGTERM)
        assert node.wait(20) == 0
    finally:
        node.kill()
        node.communicate()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_an_input_whose_end_cannot_be_waited_for_is_refused() -> None:
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--memory", "--port", "0", "--until-eof"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "--until-eof needs a pipe" in done.stderr


@pytest.mark.processes
def test_a_node_whose_input_has_ended_writes_nothing(tmp_path: Path) -> None:
    data = tmp_path / "removed" / "data"
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(data), "--port", "0", "--until-eof"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "stopping on the end of its input, before the node served" in done.stderr
    assert list(tmp_path.iterdir()) == []


def settings(**given: object) -> list[str]:
    return own_settings(
        Namespace(**{"file": None, "data": None, "memory": False, "port": None, "control": None} | given)
    )


def test_a_port_is_that_of_the_clients() -> None:
    listeners, advertised, quorum = settings(port=29_092)
    assert listeners.startswith("listeners=PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:")
    assert advertised == f"advertised.{listeners}"
    assert quorum.rpartition(":")[2] == listeners.rpartition(":")[2]


def test_port_0_is_a_free_one() -> None:
    listeners = settings(port=0)[0]
    assert "127.0.0.1:0" not in listeners
    assert len(set(free_ports())) == 2


def formats(**given: object) -> Formatting | None:
    return formatting(Namespace(**{"file": None, "cluster_id": None, "add_scram": []} | given), {})


def test_an_empty_directory_is_formatted_for_the_cluster_and_with_the_users_that_are_given() -> None:
    assert formats() == Formatting(None, ())
    cluster_id, user = "MkU3OEVBNTcwNTJENDM2Qk", "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    assert formats(cluster_id=cluster_id, add_scram=[user]) == Formatting(cluster_id, (user,))
    assert formats(file="server.properties") is None
    with pytest.raises(CommandError, match="16 bytes"):
        formats(cluster_id="short")
    for given in ({"cluster_id": cluster_id}, {"add_scram": [user]}):
        with pytest.raises(CommandError, match="without a file"):
            formats(file="server.properties", **given)


def test_what_does_not_fit_together_is_refused() -> None:
    for given in ({"file": "server.properties", "memory": True}, {"file": "server.properties", "port": 1}):
        with pytest.raises(CommandError, match="without a file"):
            settings(**given)
    with pytest.raises(CommandError, match="--data"):
        settings(memory=True, data="/tmp/d")
