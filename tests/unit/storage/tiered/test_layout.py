"""Keys of objects: stable, and read back to what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.layout import (
    DATA_KINDS,
    ObjectKind,
    SegmentObject,
    object_key,
    parse_key,
    parse_partition_prefix,
    partition_prefix,
)
from moldau.storage.tiered.metadata.remote_segment import RemotePartition

ORDERS = RemotePartition("orders.v1", bytes(range(16)), 3)
ID = bytes.fromhex("fbefbe00000000000000000000000001")
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)


def test_the_keys_of_a_segment_are_those_that_the_documentation_describes() -> None:
    stem = "topics/orders.v1.AAECAwQFBgcICQoLDA0ODw/3/00000000000000001000-" + uuid_text(ID)
    assert [object_key(ORDERS, 1000, ID, kind) for kind in (ObjectKind.MANIFEST, *DATA_KINDS)] == [
        stem + suffix
        for suffix in (
            *(".manifest.json", ".log", ".index", ".timeindex", ".txnindex", ".snapshot"),
            ".leader_epoch_checkpoint",
        )
    ]


@given(TOPICS, st.binary(min_size=16, max_size=16), st.integers(0, 10**6), st.integers(0, 2**63 - 1))
def test_a_key_is_read_back(topic: str, topic_id: bytes, partition: int, offset: int) -> None:
    for kind in ObjectKind:
        found = SegmentObject(RemotePartition(topic, topic_id, partition), offset, ID, kind)
        assert parse_key(object_key(*found)) == found
        assert parse_partition_prefix(partition_prefix(found.partition)) == found.partition


@pytest.mark.parametrize(
    "key",
    [
        "",
        "moldau-cluster.json",
        "topics/a",
        object_key(ORDERS, 1, ID, ObjectKind.LOG) + ".tmp",
        object_key(ORDERS, 1, ID, ObjectKind.LOG).replace("/3/", "/03/"),
        object_key(ORDERS, 1, ID, ObjectKind.LOG).replace("/3/", "/x/"),
        object_key(ORDERS, 1, ID, ObjectKind.LOG).replace("topics/", "other/"),
    ],
)
def test_other_keys_stand_for_nothing(key: str) -> None:
    assert parse_key(key) is None


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "topics/",
        "topics/a/3/",
        partition_prefix(ORDERS) + "more/",
        partition_prefix(ORDERS).rstrip("/"),
        partition_prefix(ORDERS).replace("/3/", "/03/"),
        partition_prefix(ORDERS).replace("/3/", "/x/"),
        partition_prefix(ORDERS).replace("topics/", "other/"),
    ],
)
def test_other_prefixes_are_of_no_partition(prefix: str) -> None:
    assert parse_partition_prefix(prefix) is None
