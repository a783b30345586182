"""The cost of the compiled codecs beside those of kafka-python and kio: `python bench/micro/codecs.py`.

Prints the CPU time (microseconds) of a message as the median of many rounds. The three run in turns, so that other work
on the machine slows all of them. The decoder of kio is compiled Rust and its encoder Python; kafka-python, like this
project, compiles its schemas into Python. The last line is the table as JSON.
"""

from __future__ import annotations

import importlib
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from moldau.protocol.compiler import decoder_of, encode, encoder_of, request_decoder_of
from moldau.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.protocol.primitives import Chunk

ROUNDS = 41
ROUND_NS = 3_000_000

Work = Callable[[], object]


def fetch_response(partitions: int, records_size: int) -> FetchResponse:
    parts = [
        PartitionData(
            partition_index=index,
            high_watermark=100,
            last_stable_offset=100,
            log_start_offset=0,
            records=bytes(records_size),
        )
        for index in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=parts)])


def fetch_request(partitions: int) -> FetchRequest:
    parts = [
        FetchPartition(partition=index, fetch_offset=5, partition_max_bytes=1 << 20) for index in range(partitions)
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=parts)])


def produce_request(partitions: int) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=bytes(170)) for index in range(partitions)]
    topic = TopicProduceData(name="orders", partition_data=parts)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(partitions: int) -> ProduceResponse:
    parts = [PartitionProduceResponse(index=index, base_offset=5) for index in range(partitions)]
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=parts)])


CASES: list[tuple[str, str, object, int, str]] = [
    ("decode", "produce, 1 partition of 170 B", produce_request(1), 9, "producer"),
    ("decode", "produce, 2 partitions of 170 B", produce_request(2), 9, "producer"),
    ("encode", "produce reply, 1 partition", produce_response(1), 9, "producer"),
    ("decode", "fetch, 50 partitions", fetch_request(50), 12, "consumer"),
    ("encode", "fetch reply, 50 partitions of 200 B", fetch_response(50, 200), 12, "consumer"),
    ("encode", "fetch reply, 50 empty partitions", fetch_response(50, 0), 12, "consumer"),
    ("decode", "fetch reply, 50 partitions of 200 B", fetch_response(50, 200), 12, "consumer"),
    ("decode", "metadata, 1 topic", MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9, "metadata"),
]


def ours(direction: str, message: object, version: int) -> Work:
    if direction == "decode":
        compiled = request_decoder_of if type(message).__name__.endswith("Request") else decoder_of
        decoder, data = compiled(type(message), version), memoryview(encode(message, version))
        return lambda: decoder(data, 0)
    encoder = encoder_of(type(message), version)

    def write() -> list[Chunk]:
        chunks: list[Chunk] = []
        encoder(message, chunks)
        return chunks

    return write


def kafka_python(direction: str, message: object, version: int, package: str) -> Work | None:
    try:
        module: Any = importlib.import_module(f"kafka.protocol.{package}")
    except ImportError:
        return None
    cls = getattr(module, type(message).__name__)
    data = memoryview(encode(message, version))
    if direction == "decode":
        return lambda: cls.decode(data, version=version)
    theirs = cls.decode(data, version=version)
    theirs._header = None
    return lambda: theirs.encode(version=version)


def kio(direction: str, message: object, version: int) -> Work | None:
    try:
        serial: Any = importlib.import_module("kio.serial")
    except ImportError:
        return None
    name = type(message).__name__
    kind = "request" if name.endswith("Request") else "response"
    module = importlib.import_module(f"kio.schema.{name.removesuffix(kind.title()).lower()}.v{version}.{kind}")
    cls = getattr(module, name)
    data = encode(message, version)
    read = serial.entity_reader(cls)
    if direction == "decode":
        return lambda: read(data, 0)
    theirs, _ = read(data, 0)
    write = serial.entity_writer(cls)
    return lambda: write(io.BytesIO(), theirs)


def medians_us(works: list[Work | None]) -> list[float | None]:
    """Return the median time (us) of each function; the functions run in turns."""
    repeats = [max(1, ROUND_NS // max(1, elapsed_ns(work, 20) // 20)) if work else 0 for work in works]
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for taken, work, repeat in zip(times, works, repeats, strict=True):
            if work:
                taken.append(elapsed_ns(work, repeat) / repeat / 1000)
    return [round(statistics.median(taken), 2) if taken else None for taken in times]


def elapsed_ns(work: Work, repeat: int) -> int:
    start = time.process_time_ns()
    for _ in range(repeat):
        work()
    return time.process_time_ns() - start


def main() -> None:
    rows = []
    print(f"{'':46} {'ours':>8} {'kafka-python':>16} {'kio':>18}   µs of CPU (times ours)")
    for direction, name, message, version, package in CASES:
        works = [
            ours(direction, message, version),
            kafka_python(direction, message, version, package),
            kio(direction, message, version),
        ]
        mine, *others = medians_us(works)
        assert mine is not None
        shown = [f"{other:10.2f} ({other / mine:4.1f})" if other is not None else f"{'-':>17}" for other in others]
        print(f"{direction} {name:39} {mine:8.2f} {' '.join(shown)}")
        rows.append({"case": f"{direction} {name}", "us": mine, "kafka_python_us": others[0], "kio_us": others[1]})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
