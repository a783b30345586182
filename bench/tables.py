"""A topic as Arrow batches without Spark: beside its codec alone, beside a consumer with pandas, and with skipped
columns.

Producers are confluent-kafka with its default batches; values are JSON of random words and numbers. Each measurement is
a process of its own on one core, which decodes in its only thread; the first of its two passes warms it up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, NamedTuple

from bench import table_objects
from bench.figures import OURS, PEER, Figure
from bench.groups import RunForm
from bench.processes import cpu_time_with_children
from bench.spark_reads import await_high_watermarks
from bench.subjects import Bench, RunningBroker
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import decompress
from moldau.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid
from moldau.protocol.record_reader import RECORDS_SIZE_MAX

SEED: Final = 31
PARTITIONS: Final = 4
VALUES: Final = 20_000
"""The number of different values, which is more than the window of a codec holds."""
SKIPPED: Final = ("offset", "timestamp")
PASSES: Final = 2
BATCH_SIZE_MAX: Final = 4 << 20
"""The largest decompressed batch. Frames of librdkafka do not state it."""


class Topic(NamedTuple):
    """A topic of the measurement: the size of a value, the codec, and the number of records."""

    value_size: int
    codec: str
    records: int
    records_quick: int

    def __str__(self) -> str:
        return f"{'1 KiB' if self.value_size == 1024 else f'{self.value_size} B'} values, {self.codec}"

    @property
    def name(self) -> str:
        return f"table-{self.value_size}-{self.codec}"


DECODED: Final = (
    Topic(1024, "lz4", 600_000, 150_000),
    Topic(100, "zstd", 2_000_000, 500_000),
    Topic(100, "none", 2_000_000, 500_000),
)
PLAIN: Final = Topic(1024, "none", 600_000, 150_000)
"""The topic of which only offsets and timestamps are read."""
CONSUMED: Final = DECODED[1]


class Pass(NamedTuple):
    """One pass over a topic."""

    seconds: float
    rows: int
    size: int
    """The size of the decompressed records in bytes."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the parts that `form.case` selects: `files` and `objects`."""
    figures = of_files(bench, form) if form.case in "files" else []
    return figures + (table_objects.measure(bench, form) if form.case in "objects" else [])


def of_files(bench: Bench, form: RunForm) -> list[Figure]:
    server = bench.new_server("moldau", extra=("log.retention.ms=-1",))
    server.format()
    figures: list[Figure] = []
    with RunningBroker(server) as running:
        for topic in (*DECODED, PLAIN):
            count = topic.records_quick if form.is_quick else topic.records
            produce(running, topic, count)
            await_high_watermarks(server.data, topic.name, count)
        for topic in DECODED:
            runs = [
                (run_in_process("scan", server.data, topic), run_in_process("codec", server.data, topic))
                for _ in range(form.rounds)
            ]
            figures += decoding_figures(topic, runs)
        skipped = [run_in_process("skip", server.data, PLAIN) for _ in range(form.rounds)]
        rates = [each.size / each.seconds / 1e6 for each in skipped]
        note = f"{PLAIN}: {skipped[0].rows:,} records; offset and timestamp are read"
        figures.append(Figure("tables: offsets and timestamps: skipped", "MB/s", {OURS: rates}, False, note))
        figures.append(against_a_consumer(running, server.data, form.rounds))
    return figures


def decoding_figures(topic: Topic, runs: list[tuple[Pass, Pass]]) -> list[Figure]:
    """The rate of the scan, and its ratio to the rate of the codec."""
    scans = [scan.size / scan.seconds / 1e6 for scan, _ in runs]
    floors = [codec.size / codec.seconds / 1e6 for _, codec in runs]
    floor = "reading and checksums alone" if topic.codec == "none" else "the codec alone"
    first = runs[0][0]
    note = f"{first.rows:,} records, {median(scans):,.0f} MB/s of plain records; {floor}: {median(floors):,.0f} MB/s"
    shares = [100 * scan / codec for scan, codec in zip(scans, floors, strict=True)]
    rows = [scan.rows / scan.seconds for scan, _ in runs]
    return [
        Figure(f"tables: {topic}: all columns on one core, of {floor}", "%", {OURS: shares}, False, note),
        Figure(f"tables: {topic}: all columns on one core", "rows/s", {OURS: rows}, False),
    ]


def against_a_consumer(running: RunningBroker, data: Path, rounds: int) -> Figure:
    """Measure reads into a data frame of pandas: by this package, and by a consumer that makes a list of dicts."""
    ours: list[float] = []
    theirs: list[float] = []
    cpu = 0.0
    for _ in range(rounds):
        before = cpu_time_with_children(running.pid)
        mine = run_in_process("pandas", data, CONSUMED)
        cpu += cpu_time_with_children(running.pid) - before
        consumer = run_in_process("consume", f"127.0.0.1:{running.server.port}", CONSUMED)
        ours.append(mine.rows / mine.seconds)
        theirs.append(consumer.rows / consumer.seconds)
    note = f"{CONSUMED}: {mine.rows:,} records, one core; the broker used {cpu:.2f} s of CPU meanwhile"
    return Figure(
        "tables: into pandas, against confluent-kafka, dicts and pandas",
        "rows/s",
        {OURS: ours, PEER: theirs},
        False,
        note,
    )


def produce(running: RunningBroker, topic: Topic, count: int) -> None:
    """Make a topic with records of its form."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    address = f"127.0.0.1:{running.server.port}"
    running.connect().close()
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic.name, PARTITIONS, 1)]).values():
        made.result(30)
    produce_records(address, topic, count)


def produce_records(address: str, topic: Topic, count: int) -> None:
    """Add `count` records like those of `topic`, in the batches that the client makes by default."""
    from confluent_kafka import Producer

    values = list(json_documents(topic.value_size))
    producer = Producer({"bootstrap.servers": address, "compression.type": topic.codec, "linger.ms": 50})
    for number in range(count):
        while True:
            try:
                producer.produce(topic.name, values[number % VALUES], b"key-%08d" % (number // 8), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def json_documents(size: int) -> Iterator[bytes]:
    """JSON values of this size, with random numbers and words."""
    dice = Random(SEED)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 10))) for _ in range(2000)]
    for number in range(VALUES):
        head = f'{{"id":{number},"user":"{dice.getrandbits(48):012x}","amount":{dice.random() * 1e4:.2f},"note":"'
        while len(head) < size:
            head += dice.choice(words) + " "
        yield (head[: size - 2] + '"}').encode()


def run_in_process(work: str, place: Path | str, topic: Topic) -> Pass:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", "bench.tables", work, str(place), topic.name, topic.codec]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(f"  tables {topic}: {work} {told.strip()}", flush=True)
    return Pass(*json.loads(told))


def main() -> None:
    work, place, topic, codec = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    seconds, rows = 0.0, 0
    for _ in range(PASSES):
        began = time.perf_counter()
        if work == "codec":
            rows = decompress_batches(place, topic, codec)
        else:
            rows = {"scan": scan_topic, "skip": scan_offsets, "pandas": read_data_frame, "consume": consume_topic}[
                work
            ](place, topic)
        seconds = time.perf_counter() - began
    size = 0 if work in ("consume", "pandas") else plain_size(place, topic)
    print(json.dumps([seconds, rows, size]))


def scan_topic(place: str, topic: str) -> int:
    import moldau

    return sum(batch.num_rows for batch in moldau.read_topic(place, topic, threads=0))


def scan_offsets(place: str, topic: str) -> int:
    import moldau

    return sum(batch.num_rows for batch in moldau.read_topic(place, topic, columns=SKIPPED, threads=0))


def read_data_frame(place: str, topic: str) -> int:
    import moldau

    return len(moldau.pandas(place, topic, threads=0))


def consume_topic(address: str, topic: str) -> int:
    """Consume every message as a dict, and make a data frame of the dicts."""
    import pandas
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "tables", "enable.auto.commit": False})
    parts = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    wanted = sum(consumer.get_watermark_offsets(part, 10)[1] for part in parts)
    consumer.assign(parts)
    rows: list[dict[str, object]] = []
    while len(rows) < wanted:
        rows += [
            {
                "key": message.key(),
                "value": message.value(),
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": message.timestamp()[1],
            }
            for message in consumer.consume(10_000, timeout=10)
        ]
    consumer.close()
    return len(pandas.DataFrame(rows))


def decompress_batches(place: str, topic: str, codec: str) -> int:
    """Read and decompress each batch, or compute its checksum if there is no codec. Returns the number of batches."""
    import lz4.frame  # type: ignore[import-untyped]
    import zstandard

    zstd = zstandard.ZstdDecompressor()
    count = 0
    for data, position, header in stored_batches(place, topic):
        if codec == "none":
            assert crc_is_valid(data, position, header)
        elif header.is_compressed:  # A client leaves a batch as it is that would not become smaller.
            body = memoryview(data)[position + HEADER_SIZE : position + header.size]
            _ = lz4.frame.decompress(body) if codec == "lz4" else zstd.decompress(body, max_output_size=BATCH_SIZE_MAX)
        count += 1
    return count


def stored_batches(place: str, topic: str) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """The batches of the files of a topic, each as (bytes of a piece of the file, its position there, its header)."""
    for path in sorted(Path(place).glob(f"{topic}-*/*.log")):
        data = path.read_bytes()
        for position, header in iterate_batches(data):
            yield data, position, header


def plain_size(place: str, topic: str) -> int:
    """The decompressed size (bytes) of a topic's records."""

    size = 0
    for data, position, header in stored_batches(place, topic):
        body = memoryview(data)[position + HEADER_SIZE : position + header.size]
        size += len(decompress(header.codec, body, size_max=RECORDS_SIZE_MAX)) if header.is_compressed else len(body)
    return size


if __name__ == "__main__":
    main()
