"""A manifest: what is written is read, and one that does not cover its offsets is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.backup.manifest import (
    BackupManifest,
    MetadataPiece,
    PartitionBackup,
    Piece,
    TopicBackup,
    decode_manifest,
)
from moldau.storage.tiered.port import CorruptObject

ORDERS = bytes(range(16))
FIRST, SECOND, EMPTY = Piece(0, 40, 900, 0xA1, 7), Piece(40, 60, 300, 0xFFFFFFFF, -1), Piece(60, 61, 0, 0, -1)
MANIFEST = BackupManifest(
    "20261129T221701Z-1",
    "GxYvZLWkQkO8LtvI8XHoYQ",
    began_ms=1_000,
    ends_known_ms=1_010,
    ended_ms=2_000,
    metadata=MetadataPiece(512, 3, 4_096, 0xDEADBEEF),
    topics=(
        TopicBackup(
            "orders",
            ORDERS,
            (
                PartitionBackup(0, 10, 61, 4, (FIRST, SECOND, EMPTY)),
                PartitionBackup(1, 5, 5, -1, ()),
            ),
        ),
    ),
    transaction_log_ends={0: 44},
)


def with_partition(partition: PartitionBackup) -> BackupManifest:
    return replace(MANIFEST, topics=(TopicBackup("orders", ORDERS, (partition,)),))


def test_what_is_written_is_read() -> None:
    assert decode_manifest("k", MANIFEST.encode()) == MANIFEST


def test_a_manifest_of_a_source_that_could_not_ask_first_decides_nothing() -> None:
    assert decode_manifest("k", MANIFEST.encode().replace(b'"decided"', b'"other"')).transaction_log_ends == {}


def test_the_size_is_that_of_all_objects() -> None:
    assert MANIFEST.size == 4_096 + 900 + 300


@pytest.mark.parametrize(
    ("partition", "said"),
    [
        (PartitionBackup(0, 9, 5, 0, ()), "from offset 9 to 5"),
        (PartitionBackup(0, 0, 40, 0, ()), "no piece has the offsets from 0 to 40"),
        (PartitionBackup(0, 0, 60, 0, (SECOND,)), "begins at offset 40, after 0"),
        (PartitionBackup(0, 0, 61, 0, (FIRST, EMPTY)), "from 60 to 61 after 40"),
        (PartitionBackup(0, 0, 61, 0, (FIRST, SECOND)), "ends at offset 60, not at 61"),
        (PartitionBackup(0, 0, 0, 0, (Piece(0, 0, 0, 0, -1),)), "from 0 to 0 after 0"),
    ],
)
def test_pieces_that_do_not_cover_the_offsets_are_refused(partition: PartitionBackup, said: str) -> None:
    with pytest.raises(CorruptObject, match=f"k: orders-0: .*{said}"):
        decode_manifest("k", with_partition(partition).encode())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"{", b"[", "k is not JSON"),
        (b'"format_version":1', b'"format_version":2', "k has format version 2; this version reads 1"),
        (b'"asked_ms":1010', b'"asked_ms":"x"', "k: the field asked_ms is 'x'"),
        (b'"000000a1"', b'"zz"', "k: the field topics is"),
        (b'"pieces"', b'"parts"', "k: the field topics is"),
    ],
)
def test_a_damaged_manifest_is_refused(old: bytes, new: bytes, said: str) -> None:
    data = MANIFEST.encode()
    assert old in data
    with pytest.raises(CorruptObject, match=said.replace("[", r"\[")):
        decode_manifest("k", data.replace(old, new, 1))
