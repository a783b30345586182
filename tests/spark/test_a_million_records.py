"""A million records of all codecs: Spark's rows are the records of a real consumer, broker running or not.

Four partitions are written by real producers, one codec after another. The fifth is written as compaction and aborted
transactions leave a log: with offsets, records and whole batches missing, and with control batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, read_offsets
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log_config import LogConfig
from tests.conformance.brokers import Moldau, Ports

TOPIC = "mixed"
PRODUCED_PARTITIONS = 4
GAPPED = PRODUCED_PARTITIONS
RECORDS_PER_BATCH = 500
PRODUCED_COUNT = 900_000
GAPPED_COUNT = 100_000
SEGMENT_BYTES = 1 << 20
EPOCH = 0
START_MS = 1_700_000_000_000
BASE_SIZE = 40

COLUMNS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
FILLER = bytes(range(256))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moldau]:
    port = Ports(27_000, 27_100).pair()
    served = Moldau(tmp_path_factory.mktemp("million"), port, ["log.retention.ms=-1"])
    served.format()
    served.start()
    try:
        yield served
    finally:
        served.stop()


def key_of(number: int) -> bytes | None:
    return None if number % 10 == 0 else b"key-%d" % (number % 5_000)


def value_of(number: int) -> bytes | None:
    return None if number % 17 == 0 else b"%d " % number + FILLER[: BASE_SIZE + number % 97]


def headers_of(number: int) -> list[tuple[str, bytes | None]]:
    return [("trace", b"%d" % number), ("nothing", None)] if number % 50 == 0 else []


def test_the_rows_of_spark_are_the_records_of_a_consumer(broker: Moldau, spark: SparkSession) -> None:
    create_topic(broker)
    produce(broker)
    broker.stop()
    end_offset = write_gapped(broker.data)
    broker.start()
    consumed = consume(broker)
    assert consumed.num_rows == PRODUCED_COUNT + GAPPED_COUNT
    assert end_offset > GAPPED_COUNT * 1.2
    assert len(list(broker.data.glob(f"{TOPIC}-*/*.log"))) > 2 * (PRODUCED_PARTITIONS + 1)
    await_high_watermarks(broker, consumed)

    assert_same(rows(read(spark, broker)), consumed)
    assert broker.stop() == 0
    assert_same(rows(read(spark, broker, minPartitions="7")), consumed)


def create_topic(broker: Moldau) -> None:
    config = {"segment.bytes": str(SEGMENT_BYTES), "max.message.bytes": "2000000"}
    topic = NewTopic(TOPIC, PRODUCED_PARTITIONS + 1, 1, config=config)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([topic]).values():
        made.result(30)


def produce(broker: Moldau) -> None:
    """Every codec in every partition, in batches of about 500."""
    number = 0
    for codec in Codec:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": codec.name.lower(),
                "batch.num.messages": RECORDS_PER_BATCH,
                "linger.ms": 50,
                "enable.idempotence": True,
                "queue.buffering.max.messages": PRODUCED_COUNT,
            }
        )
        for _ in range(PRODUCED_COUNT // len(Codec)):
            producer.produce(
                TOPIC,
                value_of(number),
                key_of(number),
                number % PRODUCED_PARTITIONS,
                timestamp=START_MS + number,
                headers=[*headers_of(number)] or None,
            )
            number += 1
        assert producer.flush(120) == 0


def write_gapped(data: Path) -> int:
    """Write the last partition, whose broker has stopped; where its log then ends."""
    directory = LogDirectory.open(LocalFiles(), str(data), lambda _: None)
    logs = {(each.topic, each.partition): each for each in directory.partition_directories()}
    high_watermarks = dict(directory.high_watermarks)
    for topic, partition in logs:
        directory.load_log(topic, partition, LogConfig(segment_bytes=SEGMENT_BYTES), 0, lambda _: None)
    log = directory.logs[TOPIC, GAPPED]
    for batch in gapped_batches():
        result = log.append_as_follower(batch, EPOCH, 0)
        assert not result.error, result
    high_watermarks[TOPIC, GAPPED] = log.end_offset
    assert directory.close(0, -1, high_watermarks.get)
    return log.end_offset


def gapped_batches() -> Iterator[bytes]:
    """Now and then an empty batch, an aborted transaction with its marker, or a batch that is missing altogether."""
    offset = written = number = 0
    while written < GAPPED_COUNT:
        count = min(RECORDS_PER_BATCH, GAPPED_COUNT - written)
        records = [gapped_record(offset + index + index // 5) for index in range(count)]
        end_offset = offset + count + count // 5 + 3
        is_transactional = number % 10 == 4
        yield build_batch(
            records,
            base_offset=offset,
            codec=Codec(number % len(Codec)),
            log_append_time_ms=START_MS + number if number % 6 == 5 else None,
            producer_id=77 if is_transactional else -1,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=number * RECORDS_PER_BATCH if is_transactional else -1,
            is_transactional=is_transactional,
            partition_leader_epoch=EPOCH,
            last_offset=end_offset - 1,
        )
        offset, written, number = end_offset, written + count, number + 1
        if is_transactional:
            yield end_transaction_marker(
                commits=number % 20 == 5,
                producer_id=77,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=START_MS,
                base_offset=offset,
                partition_leader_epoch=EPOCH,
            )
            offset += 1
        if number % 10 == 7:
            yield build_batch([], base_offset=offset, last_offset=offset + 49, partition_leader_epoch=EPOCH)
            offset += 50
        if number % 10 == 8:
            offset += 1_000


def gapped_record(offset: int) -> Record:
    return Record(key_of(offset), value_of(offset), START_MS + offset, tuple(headers_of(offset)), offset)


def consume(broker: Moldau) -> pa.Table:
    """All records, by partition and offset."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": True,
        "check.crcs": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PRODUCED_PARTITIONS + 1)])
    found: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 120
    while len(ended) <= PRODUCED_PARTITIONS:
        assert time.monotonic() < deadline, "the consumer waits for what does not come"
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(message.partition() or 0)
    consumer.close()
    return table(found)


def table(messages: Iterable[Message]) -> pa.Table:
    """The columns of the messages."""
    columns: list[list[object]] = [[] for _ in COLUMNS]
    appends = [column.append for column in columns]
    for message in messages:
        kind, timestamp = message.timestamp()
        headers = message.headers()
        assert not isinstance(headers, dict)
        row = (
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            timestamp,
            kind - 1,  # 0 is "not available" here
            [{"key": name, "value": value} for name, value in headers] if headers else None,
        )
        for append, field in zip(appends, row, strict=True):
            append(field)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COLUMNS).sort_by([("partition", "ascending"), ("offset", "ascending")])


def await_high_watermarks(broker: Moldau, consumed: pa.Table) -> None:
    """A running broker writes them down every few seconds."""
    ends = consumed.group_by("partition").aggregate([("offset", "max")]).to_pydict()
    wanted = dict(zip(ends["partition"], ends["offset_max"], strict=True))
    deadline = time.monotonic() + 30
    while True:
        written = read_offsets(LocalFiles(), str(broker.data), HIGH_WATERMARK_CHECKPOINT)
        if all(written.get((TOPIC, partition), 0) > last for partition, last in wanted.items()):
            return
        assert time.monotonic() < deadline, f"{written} after 30 s, {wanted} expected"
        time.sleep(0.1)


def read(spark: SparkSession, broker: Moldau, **options: str) -> DataFrame:
    source = spark.read.format("moldau").option("subscribe", TOPIC).option("includeHeaders", "true")
    return source.options(**options).load(str(broker.data))


def rows(read_from: DataFrame) -> pa.Table:
    """What Spark read, by partition and offset."""
    shown = read_from.where(f"topic = '{TOPIC}'").selectExpr(
        "partition", "offset", "key", "value", "unix_millis(timestamp) AS timestamp", "timestampType", "headers"
    )
    collected: pa.Table = shown.toArrow()
    return collected.cast(COLUMNS).sort_by([("partition", "ascending"), ("offset", "ascending")])


def assert_same(mine: pa.Table, theirs: pa.Table) -> None:
    assert mine.num_rows == theirs.num_rows
    for name in COLUMNS.names:
        assert mine[name].equals(theirs[name]), f"{name} differs"
