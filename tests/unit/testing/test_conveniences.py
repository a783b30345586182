"""Topics, records and offsets in one line, through each client library."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from moldau.testing import Cluster, Record
from moldau.testing.clients import aiokafka_thread, confluent, kafka_python
from moldau.testing.clients.confluent import ConfluentClient
from moldau.testing.clients.installed import LIBRARIES

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", params=[each.name for each in LIBRARIES])
def kafka(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(client=request.param) as cluster:
        yield cluster


def test_topics_are_made_listed_and_deleted(kafka: Cluster) -> None:
    kafka.create_topic("made", partitions=3, settings={"retention.ms": 60_000})
    assert "made" in kafka.topics()
    assert kafka.client.ends("made") == {0: 0, 1: 0, 2: 0}
    kafka.delete_topic("made")
    assert "made" not in kafka.topics()
    assert kafka.client.ends("made") == {}


def test_a_record_comes_back_as_it_was_written(kafka: Cluster) -> None:
    kafka.create_topic("written", partitions=2)
    made = kafka.produce("written", "höher", key=b"k", headers={"trace": "1", "raw": b"\xff"}, partition=1)
    kafka.produce("written", None, key="k", partition=0)
    assert made.partition == 1 and made.offset == 0 and made.timestamp_ms > 0
    assert kafka.records("written") == [
        Record("written", 0, 0, None, b"k", (), kafka.records("written")[0].timestamp_ms),
        Record("written", 1, 0, "höher".encode(), b"k", (("trace", b"1"), ("raw", b"\xff")), made.timestamp_ms),
    ]


def test_records_are_waited_for(kafka: Cluster) -> None:
    kafka.create_topic("late")
    timer = Timer(0.2, lambda: kafka.produce("late", "second"))
    kafka.produce("late", "first")
    timer.start()
    assert [record.value for record in kafka.records("late", 2)] == [b"first", b"second"]
    timer.join()
    with pytest.raises(AssertionError, match=r"2 of 3 records are in late after 0\.1 s"):
        kafka.records("late", 3, timeout_s=0.1)


def test_records_are_replayed_in_the_order_of_their_times(kafka: Cluster) -> None:
    kafka.create_topic("once", 2)
    kafka.create_topic("again", 2)
    for value, partition, timestamp_ms in (("b", 0, 2_000), ("c", 1, 3_000), ("a", 1, 1_000)):
        kafka.produce("once", value, key="k", headers={"h": value}, partition=partition, timestamp_ms=timestamp_ms)
    moved: list[float] = []

    class Clock:
        def advance(self, *, seconds: float) -> None:
            moved.append(seconds)

    assert kafka.replay("once", "again", speed=1_000, clock=Clock()) == 3  # type: ignore[arg-type]
    found = [(each.partition, each.value, each.timestamp_ms, each.headers) for each in kafka.records("again", 3)]
    assert found == [
        (0, b"b", 2_000, (("h", b"b"),)),
        (1, b"a", 1_000, (("h", b"a"),)),
        (1, b"c", 3_000, (("h", b"c"),)),
    ]
    assert moved == [1.0, 1.0]
    assert kafka.replay("again", "once") == 3
    with pytest.raises(ValueError, match="above 0"):
        kafka.replay("once", "again", speed=0)


def test_a_topic_that_does_not_exist_has_no_records_and_is_not_made(kafka: Cluster) -> None:
    assert kafka.records("never") == []
    assert "never" not in kafka.topics()


def test_what_is_written_within_a_block_is_asserted(kafka: Cluster) -> None:
    kafka.create_topic("watched")
    kafka.produce("watched", "before")
    with kafka.assert_produces("watched") as found:
        kafka.produce("watched", "one")
    assert [record.value for record in found] == [b"one"]
    with kafka.assert_produces("watched", count=0):
        pass
    with (
        pytest.raises(AssertionError, match="2 records were written to watched, where 1 are expected"),
        kafka.assert_produces("watched", 1),
    ):
        kafka.produce("watched", "two")
        kafka.produce("watched", "three")
    with (
        pytest.raises(AssertionError, match="0 of 1 records are in watched"),
        kafka.assert_produces("watched", timeout_s=0.1),
    ):
        pass


def test_only_committed_records_are_read(kafka: Cluster) -> None:
    kafka.create_topic("transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"t-{kafka.client}"})
    producer.init_transactions(10)
    for is_committed in (True, False, True):
        producer.begin_transaction()
        producer.produce("transactions", str(is_committed))
        producer.flush(10)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(10)
    assert [(record.offset, record.value) for record in kafka.records("transactions")] == [(0, b"True"), (4, b"True")]


def test_committed_offsets_are_those_of_the_group(kafka: Cluster) -> None:
    kafka.create_topic("consumed")
    kafka.produce("consumed", "x")
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["consumed"])
    (message,) = consumer.consume(1, 20)
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    assert kafka.committed("readers") == {("consumed", 0): 1}
    assert kafka.committed("absent") == {}


def test_a_topic_is_created_although_librdkafka_drops_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dropped request may have made the topic: the second one then meets it."""
    asked: list[int] = []

    class Admin:
        def create_topics(self, topics: list[Any], **_: object) -> dict[str, Future[None]]:
            asked.append(len(topics))
            outcome: Future[None] = Future()
            code = KafkaError._DESTROY_BROKER if len(asked) == 1 else KafkaError.TOPIC_ALREADY_EXISTS
            outcome.set_exception(KafkaException(KafkaError(code)))
            return {"t": outcome}

    client = ConfluentClient({})
    monkeypatch.setattr(client, "_administrator", Admin())
    client.create_topic("t", 1, 1, {})
    assert asked == [1, 1]
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        client.create_topic("t", 1, 1, {})


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients give a record up after a second."""
    monkeypatch.setattr(confluent, "WRITING", confluent.WRITING | {"message.timeout.ms": "1000"})
    quick = {"request_timeout_ms": 900, "delivery_timeout_ms": 1000}
    monkeypatch.setattr(kafka_python, "WRITING", kafka_python.WRITING | quick)
    monkeypatch.setattr(aiokafka_thread, "WRITING", aiokafka_thread.WRITING | {"request_timeout_ms": 1000})


@pytest.mark.parametrize("name", [each.name for each in LIBRARIES])
def test_a_record_that_a_held_node_did_not_take_is_no_error_of_the_next_one(name: str, impatience: None) -> None:
    with Cluster(client=name) as kafka:
        kafka.create_topic("t")
        kafka.produce("t", "before")
        kafka.node(1).pause()
        with pytest.raises(TimeoutError, match="the record for t was not acknowledged in time"):
            kafka.produce("t", "while it is held")
        kafka.node(1).resume()
        after = [kafka.produce("t", f"after {number}") for number in range(3)]
        values = [record.value for record in kafka.records("t")]
        assert [record.value for record in after] == [value for value in values if value and b"after" in value]
        assert values.count(b"while it is held") <= 1


def test_what_librdkafka_still_holds_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit waits for less than librdkafka does: the record leaves with its producer."""
    monkeypatch.setattr(confluent, "WRITING_S", 0.2)
    with Cluster(client="confluent-kafka") as kafka:
        kafka.create_topic("t")
        kafka.produce("t", "before")
        kafka.node(1).pause()
        with pytest.raises(TimeoutError, match="not acknowledged in time"):
            kafka.produce("t", "while it is held")
        kafka.node(1).resume()
        monkeypatch.setattr(confluent, "WRITING_S", 20.0)
        assert kafka.produce("t", "after").value == b"after"


def test_another_node_takes_a_record_in_place_of_a_held_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent, "WRITING", confluent.WRITING | {"socket.timeout.ms": "3000"})
    session = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 500}
    with Cluster(3, client="confluent-kafka", control=True, settings=session) as kafka:
        kafka.create_topic("t")
        kafka.move_leader("t", to=3)
        kafka.produce("t", "before")
        kafka.node(3).pause()
        assert kafka.produce("t", "while it is held").offset == 1
