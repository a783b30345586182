"""The actions that docs/faults.md lists, against real clients: what each gets, and what is in the log then."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from kafka import KafkaProducer  # type: ignore[import-untyped]

from tests.unit.broker.faults.test_control import ROOT, Served, served

pytestmark = pytest.mark.processes
TOPIC = "t"
ERRORS = {"TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationFailedError"}


class Effect(NamedTuple):
    action: dict[str, object]
    outcome: str
    records: int


def effects() -> list[Effect]:
    """The rows of the page's table."""
    text = (ROOT / "docs/faults.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\{.*?\})` \| [^|]+ \| ([^|]+) \| (\d) \|$", text, re.M)
    return [Effect(json.loads(action), outcome, int(records)) for action, outcome, records in rows]


def by_confluent_kafka(bootstrap: str) -> int | str:
    told: list[int | str | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(TOPIC, b"x", partition=0, on_delivery=lambda e, m: told.append(e.name() if e else m.offset()))
    producer.flush(20)
    assert told[0] is not None
    return told[0]


def by_kafka_python(bootstrap: str) -> int | str:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False, retries=3)
    try:
        offset: int = producer.send(TOPIC, b"x", partition=0).get(20).offset
        return offset
    except Exception as error:
        return type(error).__name__
    finally:
        producer.close()


def by_aiokafka(bootstrap: str) -> int | str:
    async def produce() -> int | str:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        try:
            offset: int = (await producer.send_and_wait(TOPIC, b"x", partition=0)).offset
            return offset
        except Exception as error:
            return type(error).__name__
        finally:
            await producer.stop()

    return asyncio.run(produce())


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with served("--memory") as each:
        assert each.produce(TOPIC) == ""
        yield each


def end(node: Served) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), 10)
    consumer.close()
    offset: int = high
    return offset


@pytest.mark.parametrize("produce", [by_confluent_kafka, by_kafka_python, by_aiokafka])
@pytest.mark.parametrize("effect", effects(), ids=lambda effect: json.dumps(effect.action)[:40])
def test_an_action_has_the_effect_that_the_page_tells_and_ends(
    node: Served, effect: Effect, produce: Callable[[str], int | str]
) -> None:
    before = end(node)
    fault = {"scope": {"api": "Produce"}, "when": {"once": True}, "do": effect.action}
    node.add(fault | ({"ends_after_ms": 300} if "hold" in effect.action else {}))
    got = produce(node.bootstrap)
    assert (got in ERRORS) is (effect.outcome == "the error"), got
    assert end(node) - before == effect.records
    if "made up" in effect.outcome:
        assert got == 700
    assert node.ask("GET", "/v1/faults") == {"faults": []}
    before = end(node)
    assert produce(node.bootstrap) == before, "the fault has ended"


def test_the_page_lists_every_action() -> None:
    from moldau.broker.faults.fault import Action

    listed = {name for effect in effects() for name in effect.action}
    assert listed == set(Action.__dataclass_fields__) - {"until", "disk_error"}


def test_an_idempotent_producer_writes_once_where_the_answer_is_lost(node: Served) -> None:
    before = end(node)
    node.add({"scope": {"api": "Produce"}, "when": {"once": True}, "do": {"lose_answer": True}})
    assert node.produce(TOPIC, b"x", **{"enable.idempotence": True, "retries": 5}) == ""
    assert end(node) - before == 1
