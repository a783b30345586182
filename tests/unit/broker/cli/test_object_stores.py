"""The commands that read and write an object store, as a user types them: backup, restore, erase and tier.

The store is moto's S3 server, or the one of MOLDAU_S3_ENDPOINT with the credentials of AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY: any server whose buckets can be made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import boto3
import pytest

from moldau.testing.cluster import Cluster
from tests.support.daily_command import DailyCommand
from tests.support.s3_server import S3Server
from tests.unit.broker.cli.test_restore import committed_records, serving

pytestmark = pytest.mark.processes
ENDPOINT: Final = "MOLDAU_S3_ENDPOINT"
REGION: Final = "us-east-1"
COPIED_S_MAX: Final = 60
PERSONS: Final = 5
RECORDS: Final = 400
TOPIC: Final = ("topic", "create", "orders", "--partitions", "1", "--config", "remote.storage.enable=true")
SEGMENTS: Final = ("--config", "segment.bytes=1048576", "--config", "local.retention.bytes=1048576")


class Store(NamedTuple):
    """An S3 server and a bucket in it."""

    endpoint: str
    bucket: str
    client: Any

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    @property
    def words(self) -> tuple[str, ...]:
        """The options of a command for this server."""
        return ("--endpoint", self.endpoint, "--region", REGION)

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    given = os.environ.get(ENDPOINT)
    server = S3Server() if given is None else None
    if server is not None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    endpoint = given or (server.endpoint if server is not None else "")
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION)
    bucket = f"moldau-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    yield Store(endpoint, bucket, client)
    if server is not None:
        server.close()


@pytest.fixture
def cluster(store: Store) -> Iterator[Cluster]:
    """A node whose remote storage is in the store."""
    settings = {
        "moldau.tiered.storage": store.url("tier"),
        "moldau.tiered.storage.endpoint": store.endpoint,
        "moldau.tiered.storage.region": REGION,
        "remote.log.storage.system.enable": "true",
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "remote.log.manager.task.interval.ms": 200,
        "log.initial.task.delay.ms": 200,
        "log.retention.check.interval.ms": 500,
        "moldau.erase.enable": "true",
    }
    with Cluster(1, settings=settings, memory=False) as made:
        yield made


def fill(cluster: Cluster, store: Store, run: DailyCommand) -> list[bytes]:
    """Write five segments of which the first ones are in remote storage alone at the end. Returns the values."""
    run.done(*TOPIC, *SEGMENTS)
    values = [b"%016d" % number + b"." * 13_000 for number in range(RECORDS)]
    for number, value in enumerate(values):
        cluster.produce("orders", value, key=b"person-%d" % (number % PERSONS))
    assert cluster.directory is not None
    deadline = time.monotonic() + COPIED_S_MAX
    while len(list(cluster.directory.glob("node-*/orders-0/*.log"))) > 2:
        assert time.monotonic() < deadline, store.keys("tier/")
        time.sleep(0.1)
    return values


def test_backups_in_a_bucket_and_a_restore(cluster: Cluster, store: Store, tmp_path: Path) -> None:
    run = DailyCommand(cluster.bootstrap_servers)
    values = fill(cluster, store, run)
    place, size = store.url("backups/prod"), sum(map(len, values))
    (first,) = run.rows("backup", place, *store.words)
    assert first["copied_bytes"] > size, "what is in remote storage alone is in a backup of a running cluster"
    cluster.produce("orders", b"new", key=b"person-0")
    (second,) = run.rows("backup", place, *store.words)
    assert second["copied_bytes"] < size // 50 and second["kept_bytes"] == first["copied_bytes"]
    for backup in (first, second):
        (found,) = run.rows("backup", place, "--verify", backup["backup"], *store.words)
        assert found["damaged"] == 0 and found["objects"] > 1
    assert [each["backup"] for each in run.rows("backup", place, "--list", *store.words)] == [
        first["backup"],
        second["backup"],
    ]
    *_, dropped = run.rows("backup", place, "--keep", "1", *store.words)
    assert dropped["dropped"] == [first["backup"], second["backup"]]
    assert len(store.keys("backups/prod/backups/")) == 1
    restored = tmp_path / "restored"
    run.done("restore", place, "--to", str(restored), "--single-node", "1", "--topics", "orders", *store.words)
    with serving(restored / "1") as servers:
        assert committed_records(servers) == [*values, b"new"]
    missing = run("backup", f"s3://{store.bucket}-away/prod", *store.words)
    assert missing.status == 3 and "does not exist" in missing.failure


def test_an_erasure_from_remote_storage(cluster: Cluster, store: Store, tmp_path: Path) -> None:
    run = DailyCommand(cluster.bootstrap_servers)
    values = fill(cluster, store, run)
    receipt = tmp_path / "receipt.json"
    words = ("erase", "orders", "--key", "person-3", "--execute", "--receipt", str(receipt))
    erased = run(*words, timeout_s=240)
    assert erased.status == 0, erased
    verify = ("erase", "--verify", str(receipt), "--key", "person-3", "--storage", store.url("tier"), *store.words)
    deadline = time.monotonic() + COPIED_S_MAX
    while (said := run(*verify, timeout_s=240)).status:
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    kept = [value for number, value in enumerate(values) if number % PERSONS != 3]
    assert committed_records(cluster.bootstrap_servers) == kept
    checked = run("tier", "verify", "--storage", store.url("tier"), *store.words)
    assert checked.status == 0, checked
