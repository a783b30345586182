"""`moldau erase --verify --storage`: a remainder in an object is found, whether the cluster names the object or not."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from random import Random

import pytest

from moldau.broker.cli.daily.erasure.stored_objects import counts_in
from moldau.broker.cli.daily.failures import Failure
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, ObjectKind, object_key
from moldau.storage.tiered.manifest import encode_cluster_manifest
from moldau.storage.tiered.metadata.remote_segment import RemotePartition

PARTITION = RemotePartition("orders", b"t" * 16, 1)
CLUSTER = "a-cluster"


def written(path: Path, **keys: list[bytes]) -> Namespace:
    """A storage with segments, by the letter of their ids."""

    async def write() -> None:
        storage = DirectoryStorage(str(path), Random(1))
        await storage.put(CLUSTER_MANIFEST_KEY, encode_cluster_manifest(CLUSTER))
        for letter, named in keys.items():
            data = build_batch([Record(key, b"v") for key in named])
            await storage.put(object_key(PARTITION, 0, letter.encode() * 16, ObjectKind.LOG), data)
        other = PARTITION._replace(partition=2)
        await storage.put(object_key(other, 0, b"x" * 16, ObjectKind.LOG), build_batch([Record(b"ada", b"v")]))

    asyncio.run(write())
    return Namespace(storage=str(path), endpoint=None, region=None)


def test_a_remainder_in_an_object_without_a_manifest_is_found(tmp_path: Path) -> None:
    given = written(tmp_path, a=[b"bob", b"eve"], b=[b"bob", b"ada"])
    assert counts_in(given, CLUSTER, PARTITION, lambda record: record.key == b"ada") == (4, 1)
    assert counts_in(given, CLUSTER, PARTITION, lambda record: record.offset == 0) == (4, 2)
    assert counts_in(given, CLUSTER, PARTITION, lambda record: record.key == b"zoe") == (4, 0)


def test_a_storage_of_another_cluster_is_refused(tmp_path: Path) -> None:
    given = written(tmp_path, a=[b"ada"])
    with pytest.raises(Failure, match="belongs to the cluster a-cluster"):
        counts_in(given, "another", PARTITION, lambda _: True)
    with pytest.raises(Failure, match="cannot be read"):
        counts_in(Namespace(storage=str(tmp_path / "missing"), endpoint=None, region=None), CLUSTER, PARTITION, bool)
