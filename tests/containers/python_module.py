"""The image under the Kafka module of Testcontainers for Python, and by itself."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from moldau.testing.ports import free_ports

IMAGE = os.environ["MOLDAU_IMAGE"]
KafkaContainer: Any = import_module("testcontainers.kafka").KafkaContainer


def exchange(servers: str) -> None:
    """Write a record and read it in a group."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", b"three rolls", b"customer-1")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "kitchen", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    (record,) = consumer.consume(1, 30)
    assert record.value() == b"three rolls"
    consumer.close()


def test_the_module_starts_it_without_zookeeper() -> None:
    """The module reads a release of Confluent Platform from the tag."""
    subprocess.run(["docker", "tag", IMAGE, f"{IMAGE}:7.6.0"], check=True)
    with KafkaContainer(f"{IMAGE}:7.6.0").with_kraft() as kafka:
        exchange(kafka.get_bootstrap_server())


def test_the_module_starts_it_where_it_expects_zookeeper() -> None:
    with KafkaContainer(IMAGE) as kafka:
        exchange(kafka.get_bootstrap_server())


@contextmanager
def container(*arguments: str) -> Iterator[str]:
    """A container by `docker run`; yields its id."""
    started = subprocess.run(["docker", "run", "-d", *arguments], check=True, capture_output=True, text=True)
    name = started.stdout.strip()
    try:
        yield name
    finally:
        subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)


def await_nodes(servers: str, count: int) -> None:
    deadline = time.monotonic() + 60
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    while True:
        with suppress(KafkaException):
            if len(admin.list_topics(timeout=2).brokers) == count:
                return
        assert time.monotonic() < deadline, f"{servers} has no {count} nodes"
        time.sleep(0.2)


def test_three_brokers_in_one_container() -> None:
    port = free_ports(3)[0]
    published = f"{port}-{port + 2}:{port}-{port + 2}"
    command = ("moldau", "cluster", "--listen", "0.0.0.0", "--port", str(port), "--data", "data")
    with container("-p", published, IMAGE, *command):
        await_nodes(f"127.0.0.1:{port}", 3)
        exchange(f"127.0.0.1:{port}")


def test_three_brokers_behind_other_ports() -> None:
    port = free_ports(3)[0]
    told = ",".join(f"127.0.0.1:{port + number}" for number in range(3))
    command = ("moldau", "cluster", "--listen", "0.0.0.0", "--advertise", told, "--data", "data")
    with container("-p", f"{port}-{port + 2}:9092-9094", IMAGE, *command):
        await_nodes(told, 3)
        exchange(told)


@pytest.mark.parametrize("command", [(), ("moldau", "cluster", "--data", "data")], ids=["node", "cluster"])
def test_sigterm_is_a_clean_stop(command: tuple[str, ...]) -> None:
    with container(IMAGE, *command) as name:
        deadline = time.monotonic() + 60
        while not any(word in logs(name) for word in ("Kafka Server started", "Ctrl-C stops all")):
            assert time.monotonic() < deadline, logs(name)
            time.sleep(0.2)
        began = time.monotonic()
        subprocess.run(["docker", "stop", "-t", "30", name], check=True, capture_output=True)
        assert time.monotonic() - began < 20
        assert "moldau: stopped" in logs(name)
        status = subprocess.run(
            ["docker", "inspect", "-f", "{{.State.ExitCode}}", name], check=True, capture_output=True, text=True
        )
        assert status.stdout.strip() == "0"


def logs(name: str) -> str:
    done = subprocess.run(["docker", "logs", name], check=True, capture_output=True, text=True)
    return done.stdout + done.stderr
