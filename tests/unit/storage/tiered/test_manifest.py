"""Manifests: read as they were written, and refused with a named error if they do not hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.layout import REQUIRED_KINDS, ObjectKind
from moldau.storage.tiered.manifest import (
    ObjectSummary,
    SegmentManifest,
    decode_cluster_manifest,
    decode_manifest,
    encode_cluster_manifest,
)
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, RemoteStorageError, WrongCluster

ORDERS = RemotePartition("orders", bytes(range(16)), 3)
ID = bytes(range(100, 116))
EPOCHS = (EpochStart(1, 100), EpochStart(4, 150))
MANIFEST = SegmentManifest(
    cluster_id="ours",
    partition=ORDERS,
    segment_id=ID,
    start_offset=100,
    last_offset=199,
    epochs=EPOCHS,
    max_timestamp_ms=-1,
    objects={kind: ObjectSummary(10 * number, 0xABC + number) for number, kind in enumerate(REQUIRED_KINDS)},
    generation=2,
    cleaned_end_offset=400,
    ancestors=(bytes(16), bytes(range(1, 17))),
)
SEGMENT = RemoteSegment(ID, 100, 199, 1, -1, 0, EPOCHS, 0, has_transaction_index=False)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest("k", MANIFEST.encode()) == MANIFEST
    with_transactions = replace(
        MANIFEST, objects={**MANIFEST.objects, ObjectKind.TRANSACTION_INDEX: ObjectSummary(34, 1)}
    )
    assert decode_manifest("k", with_transactions.encode()) == with_transactions
    assert decode_cluster_manifest("k", encode_cluster_manifest("ours")) == "ours"


def test_a_field_of_a_later_version_is_no_error() -> None:
    fields = json.loads(MANIFEST.encode())
    assert decode_manifest("k", json.dumps({**fields, "colour": "blue"}).encode()) == MANIFEST


def test_damage_is_named() -> None:
    fields = json.loads(MANIFEST.encode())
    for name in fields:
        lacking = {key: value for key, value in fields.items() if key != name}
        with pytest.raises(CorruptObject, match=f"k has no field {name}"):
            decode_manifest("k", json.dumps(lacking).encode())
        for value in (None, [1], {"a": 1}, "x" * 30, -2):
            if name == "cluster_id" and isinstance(value, str):
                continue
            if name == "topic" and isinstance(value, str):
                continue
            with pytest.raises(CorruptObject, match="k"):
                decode_manifest("k", json.dumps({**fields, name: value}).encode())
    for size in range(len(MANIFEST.encode()) - 1):
        with pytest.raises(CorruptObject):
            decode_manifest("k", MANIFEST.encode()[:size])
    with pytest.raises(CorruptObject, match="k has format version 2; this version reads 1"):
        decode_manifest("k", json.dumps({**fields, "format_version": 2}).encode())


def test_it_is_compared_with_the_metadata() -> None:
    MANIFEST.check("ours", ORDERS, SEGMENT, "k")
    wrong: list[tuple[SegmentManifest, RemoteSegment, type[RemoteStorageError], str]] = [
        (replace(MANIFEST, cluster_id="theirs"), SEGMENT, WrongCluster, "k belongs to the cluster theirs, not to ours"),
        (replace(MANIFEST, last_offset=198), SEGMENT, CorruptObject, "another segment"),
        (replace(MANIFEST, partition=ORDERS._replace(partition=1)), SEGMENT, CorruptObject, "another segment"),
        (MANIFEST, replace(SEGMENT, size=11), CorruptObject, "0 bytes of records, the metadata 11"),
        (MANIFEST, replace(SEGMENT, has_transaction_index=True), CorruptObject, "transaction index"),
    ]
    for manifest, segment, error, words in wrong:
        with pytest.raises(error, match=words):
            manifest.check("ours", ORDERS, segment, "k")


def test_the_documentation_shows_a_manifest_as_it_is_written() -> None:
    text = Path("docs/tiered_storage.md").read_text()
    shown = text.partition("```json\n")[2].partition("```")[0].encode()
    manifest = decode_manifest("docs", shown)
    assert manifest.encode() == shown
    assert manifest.segment_id == ID and manifest.partition == ORDERS
    for kind in ObjectKind:
        assert f"| `{kind.value}` |" in text
