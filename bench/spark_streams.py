"""Streaming queries of Spark that read with Moldau's source, beside the same queries with Spark's Kafka connector: the
rate from files, and the latency over a broker.

The latency is the time of a record from its producer through a query to a consumer. Both queries copy the records to
another topic by the connector's sink, so that only the sources differ.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.figures import OURS, PEER, Figure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from confluent_kafka import Consumer, Producer
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bench.subjects import RunningBroker

TRIGGERS: Final = 8
"""The number of triggers in which a sustained stream reads a topic."""
WARM_UP_ROUNDS: Final = 2
"""The first rounds warm up the JVM."""
SOURCE: Final = "trigger"
ECHO: Final = "trigger-echo"
RECORDS: Final = 25
RECORDS_QUICK: Final = 20
WARM_UP: Final = 15
"""The number of first records, which are not counted."""
ANSWER_S_MAX: Final = 60.0
FORMATS: Final = {OURS: "moldau", PEER: "kafka"}


class StreamTopic(NamedTuple):
    """The topic that a sustained stream reads."""

    name: str
    label: str
    records: int


def sustained_rates(session: SparkSession, running: RunningBroker, topic: StreamTopic, rounds: int) -> list[Figure]:
    """Measure the rows a second of a query over a whole topic: from files, and by the connector from the broker. The
    sustained rate is that of the triggers after the first one, because a query starts once and then runs for days; the
    other rate is that of the whole query.
    """
    home = running.server.directory / "streams"
    rates: dict[str, list[float]] = {OURS: [], PEER: []}
    whole_rates: dict[str, list[float]] = {OURS: [], PEER: []}
    for number in range(WARM_UP_ROUNDS + rounds):
        for who, name in FORMATS.items():
            source = session.readStream.format(name).option("subscribe", topic.name)
            source = source.option("startingOffsets", "earliest")
            source = source.option("maxOffsetsPerTrigger", str(-(-topic.records // TRIGGERS)))
            if who == OURS:
                rows = source.load(str(running.server.data))
            else:
                rows = source.option("kafka.bootstrap.servers", f"127.0.0.1:{running.server.port}").load()
            run = run_to_end(rows, home / f"{name}-{number}", topic.records)
            if number >= WARM_UP_ROUNDS:
                rates[who].append(run.sustained_rate)
                whole_rates[who].append(run.rate)
                print(f"  spark {topic.label}: stream by {name}: {run.sustained_rate:,.0f} rows/s", flush=True)
    shutil.rmtree(home)
    note = f"{topic.records:,} records in {TRIGGERS} triggers, to noop; this source reads files"
    return [
        Figure(
            f"spark: {topic.label}: sustained stream from files, against the JVM connector",
            "rows/s",
            rates,
            False,
            f"{note}; the triggers after the first",
        ),
        Figure(
            f"spark: {topic.label}: stream from files with its start, in times the JVM connector's",
            "rows/s",
            whole_rates,
            False,
            note,
        ),
    ]


class StreamRates(NamedTuple):
    """The rows a second of a query: of its triggers after the first, and of the whole query."""

    sustained_rate: float
    rate: float


def run_to_end(rows: DataFrame, checkpoint: Path, records: int) -> StreamRates:
    """Run a query that reads everything that is there."""
    began = time.perf_counter()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    triggers = [each for each in query.recentProgress if each["numInputRows"]]
    counts = [each["numInputRows"] for each in triggers]
    assert sum(counts) == records, f"{sum(counts)} rows of {records}"
    second, last = (datetime.fromisoformat(triggers[index]["timestamp"]) for index in (1, -1))
    sustained_s = (last - second).total_seconds() + triggers[-1]["durationMs"]["triggerExecution"] / 1000
    return StreamRates(sum(counts[1:]) / sustained_s, records / seconds)


def echo_latencies_ms(session: SparkSession, running: RunningBroker, rounds: int, *, is_quick: bool) -> list[Figure]:
    """Measure the latencies (ms) from a record's producer to its consumer, through a query over a broker."""
    address = f"127.0.0.1:{running.server.port}"
    make_topics(address)
    values: dict[str, list[float]] = {OURS: [], PEER: []}
    for number in range(rounds):
        for who, name in FORMATS.items():
            checkpoint = running.server.directory / f"trigger-{name}-{number}"
            with echo_query(session, name, address, checkpoint), clients(address) as (producer, consumer):
                count = RECORDS_QUICK if is_quick else RECORDS
                times = [answer_ms(producer, consumer, f"{name}-{number}-{each}") for each in range(WARM_UP + count)]
            shutil.rmtree(checkpoint)
            values[who].append(median(times[WARM_UP:]))
            print(f"  spark small trigger over a broker by {name}: {values[who][-1]:.0f} ms", flush=True)
    note = "one record at a time, median; both write by the connector's sink"
    name = "spark: small trigger over a broker: latency, in times the JVM connector's"
    return [Figure(name, "ms", values, note=note)]


def make_topics(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(SOURCE, 1, 1), NewTopic(ECHO, 1, 1)]).values():
        made.result(30)


@contextmanager
def echo_query(session: SparkSession, name: str, address: str, checkpoint: Path) -> Iterator[StreamingQuery]:
    """Start a query that copies new records from one topic to the other, trigger after trigger."""
    source = session.readStream.format(name).option("kafka.bootstrap.servers", address).option("subscribe", SOURCE)
    rows = source.option("startingOffsets", "latest").load().select("key", "value")
    sink = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", address).option("topic", ECHO)
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(processingTime="0 seconds").start()
    try:
        # The first trigger fixes the offsets from which the query reads.
        await_true(lambda: bool(query.recentProgress) or (checkpoint / "offsets" / "0").exists())
        yield query
    finally:
        query.stop()


@contextmanager
def clients(address: str) -> Iterator[tuple[Producer, Consumer]]:
    from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "echo", "fetch.wait.max.ms": 1000})
    consumer.assign([TopicPartition(ECHO, 0, OFFSET_END)])
    consumer.poll(1)
    try:
        yield producer, consumer
    finally:
        consumer.close()


def answer_ms(producer: Producer, consumer: Consumer, text: str) -> float:
    """Return the time (ms) until a produced record has been copied back."""
    began = time.perf_counter()
    producer.produce(SOURCE, text)
    producer.poll(0)
    while True:
        message = consumer.poll(ANSWER_S_MAX)
        assert message is not None, f"{text} has not come back"
        if message.error() is None and message.value() == text.encode():
            return (time.perf_counter() - began) * 1e3


def await_true(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ANSWER_S_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
