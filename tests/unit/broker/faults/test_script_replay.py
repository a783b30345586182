"""The same script of faults, with the same seeds, twice: real clients meet the same faults at the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Producer
from kafka import KafkaProducer  # type: ignore[import-untyped]

from tests.support.fault_script import OTHER_SEEDS, RECORDS, SCRIPT, SEEDS, story
from tests.unit.broker.faults.test_control import served

pytestmark = pytest.mark.processes
TOPIC = "t"
CLIENT = "app"


def by_confluent_kafka(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "retry.backoff.ms": 10, "reconnect.backoff.ms": 10}
    producer = Producer(settings)
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"x", partition=0)
        assert producer.flush(20) == 0


def by_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=CLIENT,  # without it a process numbers its clients
        enable_idempotence=False,
        retries=20,
        retry_backoff_ms=10,
    )
    for _ in range(RECORDS):
        producer.send(TOPIC, b"x", partition=0).get(20)
    producer.close()


def by_aiokafka(bootstrap: str) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=CLIENT, retry_backoff_ms=10)
        await producer.start()
        for _ in range(RECORDS):
            await producer.send_and_wait(TOPIC, b"x", partition=0)
        await producer.stop()

    asyncio.run(produce())


def told(script: Path, seeds: tuple[int, int, int], produce: Callable[[str], None]) -> list[tuple[str, str]]:
    """The story of a new node with the script, and of a new client."""
    script.write_text(SCRIPT.format(*seeds))
    with served("--memory", "--faults", str(script)) as node:
        produce(node.bootstrap)
        return story(node.ask("GET", "/v1/timeline")["entries"])


@pytest.mark.parametrize("produce", [by_confluent_kafka, by_kafka_python, by_aiokafka])
def test_the_same_script_and_seeds_give_the_same_timeline(tmp_path: Path, produce: Callable[[str], None]) -> None:
    pytest.importorskip("yaml")
    script = tmp_path / "faults.yaml"
    first = told(script, SEEDS, produce)
    met = {text.partition(":")[0] for what, text in first if what == "fault meets"}
    assert met == {"the leader moves", "the answer is lost", "the connection ends"}
    assert sum(what == "request" for what, _ in first) > RECORDS, "what met a fault is sent again"
    assert told(script, SEEDS, produce) == first
    assert told(script, OTHER_SEEDS, produce) != first
