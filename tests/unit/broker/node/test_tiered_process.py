"""A real broker with remote storage in an S3 server and in a directory: a real client reads through both tiers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import boto3
import pytest

from moldau.storage.tiered.layout import ObjectKind
from tests.support.s3_server import S3Server
from tests.unit.broker.node.test_main import ROOT, read_until

pytest.importorskip("confluent_kafka", reason="the clients are in an extra of their own")
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.testing.ports import free_ports

pytestmark = pytest.mark.processes
TOPIC: Final = "orders"
RECORDS: Final = 3000
VALUE_SIZE: Final = 200
PATIENCE_S: Final = 60.0
TOPIC_SETTINGS: Final = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "65536",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
BUCKET: Final = "tiers"


class S3Bucket:
    """A bucket of moto's server."""

    def __init__(self, server: S3Server) -> None:
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        self._client.create_bucket(Bucket=BUCKET)

    def keys(self) -> list[str]:
        listed = self._client.list_objects_v2(Bucket=BUCKET)
        return [each["Key"] for each in listed.get("Contents", [])]


@contextmanager
def broker(data: Path, *overrides: str) -> Iterator[str]:
    """The address of a broker that serves."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    given = [
        f"listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{free_ports(1)[0]}",
        "remote.log.storage.system.enable=true",
        "remote.log.manager.task.interval.ms=500",
        "rlmm.config.remote.log.metadata.topic.num.partitions=1",
        "rlmm.config.remote.log.metadata.topic.replication.factor=1",
        "log.initial.task.delay.ms=500",
        "log.retention.check.interval.ms=500",
        "log.segment.delete.delay.ms=0",
        *overrides,
    ]
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(data)]
    for each in given:
        command += ["--override", each]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        read_until(process, "serves")
        yield address
    finally:
        process.kill()
        process.wait()


def value_of(number: int) -> bytes:
    return f"{number:08}".encode().ljust(VALUE_SIZE, b".")


def write(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    (created,) = admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_SETTINGS)]).values()
    created.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "batch.num.messages": 50})
    for number in range(RECORDS):
        producer.produce(TOPIC, value_of(number), partition=0)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def read(address: str) -> list[bytes]:
    """All records, from the first offset on, by a client of its own."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            assert message.offset() == len(found)
            found.append(message.value() or b"")
    consumer.close()
    return found


def local_segments(data: Path) -> list[Path]:
    return sorted(data.glob(f"**/{TOPIC}-0/*.log"))


def check(data: Path, overrides: tuple[str, ...], keys: Callable[[], list[str]]) -> None:
    with broker(data, *overrides) as address:
        write(address)
        until(lambda: len(local_segments(data)) == 1, "all rolled segments are copied, and deleted here")
        assert sum(key.endswith(ObjectKind.MANIFEST.value) for key in keys()) > 5
        assert read(address) == [value_of(number) for number in range(RECORDS)]
    with broker(data, *overrides) as address:  # after a kill -9
        assert read(address) == [value_of(number) for number in range(RECORDS)]
        assert len(local_segments(data)) == 1


def test_a_client_reads_through_both_tiers_of_an_s3_server(tmp_path: Path) -> None:
    server = S3Server()
    try:
        bucket = S3Bucket(server)
        storage = (
            f"moldau.tiered.storage=s3://{BUCKET}/prefix",
            f"moldau.tiered.storage.endpoint={server.endpoint}",
            "moldau.tiered.storage.region=us-east-1",
        )
        check(tmp_path, storage, bucket.keys)
    finally:
        server.close()


def test_a_client_reads_through_both_tiers_of_a_directory(tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    storage = (f"moldau.tiered.storage={remote}",)
    check(tmp_path / "data", storage, lambda: [str(each) for each in remote.glob("**/*") if each.is_file()])
