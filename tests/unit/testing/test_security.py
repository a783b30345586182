"""A secure cluster: each client library logs in with the settings that the kit makes, and may do what ACLs allow."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer  # type: ignore[import-untyped]

from moldau.testing import Cluster, NoClient
from moldau.testing.clients.port import Permission

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster(secure=True) as cluster:
        yield cluster


def written_by_confluent(settings: dict[str, Any], topic: str) -> str | None:
    """The name of the error, or None."""
    found: list[KafkaError | None] = []
    producer = Producer(settings | {"message.timeout.ms": 5000, "log_level": 0})
    producer.produce(topic, "x", on_delivery=lambda error, message: found.append(error))
    producer.flush(10)
    return None if found[0] is None else found[0].name()


def test_a_user_may_do_what_it_is_allowed(kafka: Cluster) -> None:
    kafka.create_topic("orders")
    settings = kafka.client_settings("confluent", user="alice")
    assert written_by_confluent(settings, "orders") == "TOPIC_AUTHORIZATION_FAILED"
    kafka.allow("alice", "write", topic="orders")
    assert written_by_confluent(settings, "orders") is None
    assert written_by_confluent(kafka.client_settings("confluent", "bob"), "orders") == "TOPIC_AUTHORIZATION_FAILED"
    assert [record.value for record in kafka.records("orders")] == [b"x"]
    with pytest.raises(ValueError, match="name a topic or a group"):
        kafka.allow("alice", "read")


def test_the_other_libraries_log_in_too(kafka: Cluster) -> None:
    kafka.create_topic("logins")
    kafka.allow("bob", "all", topic="logins", group="*")
    producer = KafkaProducer(**kafka.client_settings("kafka-python", user="bob"))
    producer.send("logins", b"kafka-python").get(10)
    producer.close()

    async def by_aiokafka() -> None:
        async with AIOKafkaProducer(**kafka.client_settings("aiokafka", user="bob")) as producer:
            await producer.send_and_wait("logins", b"aiokafka")

    asyncio.run(by_aiokafka())
    assert [record.value for record in kafka.records("logins")] == [b"kafka-python", b"aiokafka"]


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka"])
def test_the_conveniences_are_those_of_the_administrator(name: str) -> None:
    with Cluster(secure=True, users=["carol"], client=name) as kafka:
        kafka.produce("t", "x")
        assert [record.value for record in kafka.records("t")] == [b"x"]
        if name == "aiokafka":
            with pytest.raises(NoClient, match="cannot create ACLs"):
                kafka.allow("carol", "read", topic="t")
        else:
            kafka.allow("carol", "write", topic="t")
            carol = kafka.client_settings("confluent", user="carol")
            assert written_by_confluent(carol, "t") is None
            kafka.client.take_back([Permission("carol", "WRITE", "TOPIC", "t")])
            assert written_by_confluent(carol, "t") == "TOPIC_AUTHORIZATION_FAILED"


def test_settings_of_java_are_those_of_its_properties(kafka: Cluster) -> None:
    settings = kafka.client_settings("java", user="alice")
    assert settings["security.protocol"] == "SASL_SSL"
    assert 'ScramLoginModule required username="alice" password="' in str(settings["sasl.jaas.config"])
    ssl.create_default_context(cadata=str(settings["ssl.truststore.certificates"]))


def test_a_wrong_password_and_an_unknown_authority_are_refused(kafka: Cluster) -> None:
    settings = kafka.client_settings("confluent", user="alice") | {"log_level": 0}
    for changed in ({"sasl.password": "wrong"}, {"ssl.ca.pem": ""}):
        with pytest.raises(KafkaException):
            AdminClient({name: value for name, value in (settings | changed).items() if value}).list_topics(timeout=2)


def test_keys_are_in_no_file_and_no_argument(kafka: Cluster) -> None:
    assert kafka.directory is None
    arguments = Path(f"/proc/{kafka.node(1).pid}/cmdline").read_text()
    assert "PRIVATE KEY" not in arguments


def test_unknown_users_and_libraries_are_refused(kafka: Cluster) -> None:
    with pytest.raises(ValueError, match="no user carol: the users are admin, alice, bob"):
        kafka.client_settings("java", user="carol")
    with pytest.raises(ValueError, match="no settings for sarama"):
        kafka.client_settings("sarama")
    with pytest.raises(ValueError, match=r"Cluster\(secure=True\)"):
        Cluster().client_settings("java", user="alice")


def test_three_secure_nodes_replicate() -> None:
    with Cluster(3, secure=True) as kafka:
        kafka.create_topic("t")
        kafka.node(1).kill()
        kafka.produce("t", "x")
        assert len(kafka.records("t")) == 1
        names = {name for node in kafka.nodes[1:] for name in node.greeting["listeners"]}
        assert names == {"CLIENTS", "NODES"}


def test_no_password_is_on_a_command_line(kafka: Cluster) -> None:
    assert kafka.client_settings("confluent", user="alice")["sasl.password"]
    for node in kafka.nodes:
        shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(node.pid)], capture_output=True, text=True).stdout
        assert "serve" in shown
        assert "password" not in shown.lower()
        assert "SCRAM-SHA-512=[" not in shown
