"""Logs for the log cleaner: each is written once, copied into stopped brokers as several topics, and made compacted
when a measurement begins.

The topics keep everything until a measurement sets `cleanup.policy=compact` on one of them. So the broker that cleans
is warm, and the time from the answer to that request until the cleaner's checkpoint is the time of the cleaning.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.client import Client
from bench.subjects import RunningBroker, Server
from moldau.protocol.compression import Codec, compress
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.primitives import crc32c, varint
from moldau.protocol.record_builder import assemble
from moldau.storage.checkpoints.text_checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
    write_offsets,
)
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

CLEANER_SETTINGS: Final = ("log.cleaner.backoff.ms=50", "log.cleaner.threads=1", "log.retention.ms=-1")
"""Settings of the brokers with which the cleaner looks for work every 50 ms."""
OTHER_TOPIC: Final = "other"
PARTITION_METADATA: Final = "partition.metadata"
SEGMENT_SIZE: Final = 256 << 20
BATCH_RECORDS: Final = 100
KEY_STRIDE: Final = 7_368_787
"""A prime number. Its multiples, modulo the number of keys, visit every key once before any key is repeated."""
VALUES_COUNT: Final = 997
WORDS_COUNT: Final = 4_000
TOPIC_RESOURCE: Final = 2
SET: Final = 0
POLL_S: Final = 0.005
CLEANED_S_MAX: Final = 900.0


class LogKind(NamedTuple):
    """The contents of a log: `records` records of `keys` keys."""

    name: str
    records: int
    keys: int
    value_size: int
    codec: Codec
    is_shuffled: bool = False
    """Whether keys come at random. If not, each key comes once before any comes again, so that the records of a batch
    are kept or removed together.
    """

    def with_fewer_records(self, divisor: int) -> LogKind:
        return self._replace(records=self.records // divisor, keys=self.keys // divisor)


class DirtyLog(NamedTuple):
    """The files of a closed log. The cleaner cleans up to `end_offset`; the segment after it is empty."""

    directory: Path
    end_offset: int


def write_log(directory: Path, kind: LogKind, now_ms: int) -> DirtyLog:
    """Write a log with this checkout's storage code, in segments of 256 MiB."""
    fs = LocalFiles()
    directory.mkdir(parents=True)
    log = Log.open(fs, str(directory), LogConfig(segment_bytes=SEGMENT_SIZE), now_ms=now_ms, clean_shutdown=True)
    for batch in record_batches(kind, now_ms):
        result = log.append_as_follower(batch, 0, now_ms)
        assert not result.error, result
    log.roll(now_ms)
    end_offset = log.end_offset
    log.close(now_ms, clean=True)
    return DirtyLog(directory, end_offset)


def record_batches(kind: LogKind, now_ms: int) -> Iterator[bytes]:
    """Yield the batches of a log, of a hundred records each."""
    values = [varint(kind.value_size) + value + b"\x00" for value in _values(kind.value_size)]
    key_size = len(_key(0))
    heads = [b"\x00\x00" + varint(delta) + varint(key_size) for delta in range(BATCH_RECORDS)]
    # A record's length depends on its place in the batch only by the size of the offset delta.
    heads = [varint(len(head) + key_size + len(values[0])) + head for head in heads]
    for first in range(0, kind.records, BATCH_RECORDS):
        count = min(BATCH_RECORDS, kind.records - first)
        body = bytearray().join(
            part
            for delta in range(count)
            for part in (
                heads[delta],
                _key(_key_number(kind, first + delta)),
                values[(first + delta) % len(values)],
            )
        )
        records = compress(kind.codec, body)
        yield assemble((records,), first, 0, int(kind.codec), count - 1, now_ms, now_ms, -1, -1, -1, count)


def _key_number(kind: LogKind, number: int) -> int:
    if kind.is_shuffled:
        return crc32c(b"%d" % number, 0) % kind.keys
    return number * KEY_STRIDE % kind.keys


def _key(number: int) -> bytes:
    return b"key-%012d" % number


def _values(size: int) -> list[bytes]:
    """Yield values of text words, which a codec compresses like real text."""
    words = [b"%x " % (crc32c(b"%d" % (number % (WORDS_COUNT // 4)), 0) & 0xFFFFF) for number in range(WORDS_COUNT)]
    made = []
    for number in range(VALUES_COUNT):
        begin = number * 31 % WORDS_COUNT
        text = b"".join(words[(begin + each * (1 + number % 7)) % WORDS_COUNT] for each in range(size // 2 + 1))
        made.append(text[:size])
    return made


def prepare_server(server: Server, logs: Sequence[tuple[str, DirtyLog]]) -> None:
    """Make a stopped broker with a copy of a log as each of these topics. The segments are hard links."""
    server.format()
    with RunningBroker(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        for topic, _ in logs:
            create_uncleaned(client, topic)
    fs, data = LocalFiles(), str(server.data)
    points = read_offsets(fs, data, RECOVERY_POINT_CHECKPOINT)
    for topic, log in logs:
        put_log(log, Path(server.data) / f"{topic}-0")
        points[topic, 0] = log.end_offset
    write_offsets(fs, data, RECOVERY_POINT_CHECKPOINT, points)


def create_uncleaned(client: Client, topic: str) -> None:
    """Create a topic that keeps all records until its cleanup policy changes."""
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(SEGMENT_SIZE),
    }
    wanted = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse, 5).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def put_log(log: DirtyLog, target: Path) -> None:
    """Copy a log into a directory. Full segments are never written again, so they are hard links; other files are
    copied.
    """
    for path in target.iterdir():
        if path.name != PARTITION_METADATA:
            path.unlink()
    for path in log.directory.iterdir():
        if path.name.startswith("."):
            continue
        if path.suffix == ".log" and path.stat().st_size:
            os.link(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


def make_compacted(client: Client, topics: Sequence[str]) -> None:
    """Make topics compacted. The cleaner finds them as soon as the request is answered."""
    change = AlterableConfig(name="cleanup.policy", config_operation=SET, value="compact")
    resources = [
        AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=each, configs=[change]) for each in topics
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    for answer in client.ask(request, IncrementalAlterConfigsResponse, 1).responses:
        assert answer.error_code == ErrorCode.NONE, answer.error_message


def cleaned_offset(server: Server, topic: str) -> int:
    """Return the offset up to which a topic's log was cleaned, from the cleaner's checkpoint."""
    return read_offsets(LocalFiles(), str(server.data), CLEANER_OFFSET_CHECKPOINT).get((topic, 0), 0)


def wait_until_cleaned(server: Server, topic: str, end_offset: int) -> None:
    deadline = time.monotonic() + CLEANED_S_MAX
    while (found := cleaned_offset(server, topic)) < end_offset:
        assert time.monotonic() < deadline, f"{server.name} has cleaned {topic} up to {found} of {end_offset}"
        time.sleep(POLL_S)


def size_of(server: Server, topic: str) -> int:
    """Return the size (bytes) of a topic's segments, without those that wait for their deletion."""
    return sum(path.stat().st_size for path in (Path(server.data) / f"{topic}-0").glob("*.log"))
