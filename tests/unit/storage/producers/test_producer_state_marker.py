"""Markers are read alike, whether they have the usual layout or another one."""

from __future__ import annotations

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.control_records import (
    END_TRANSACTION_MARKER,
    ControlRecordType,
    encode_control_key,
    end_transaction_marker,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.producers.producer_state import USUAL_MARKER_SIZE, TransactionMarker, read_transaction_marker

EPOCHS = (0, 11, (1 << 31) - 1, -1)


def built(record: Record, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        [record],
        base_offset=40,
        codec=codec,
        producer_id=7,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )


def marker(kind: ControlRecordType, epoch: int, version: int = 0) -> Record:
    return Record(encode_control_key(kind), END_TRANSACTION_MARKER.pack(version, epoch), 5)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_marker_has_the_bytes_of_any_batch(commits: bool, epoch: int) -> None:
    kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
    batch = end_transaction_marker(
        commits=commits, producer_id=7, producer_epoch=3, coordinator_epoch=epoch, timestamp=5, base_offset=40
    )
    assert batch == built(marker(kind, epoch))
    assert len(batch) == USUAL_MARKER_SIZE


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_a_marker_of_any_layout_is_read(kind: ControlRecordType, epoch: int) -> None:
    expected = TransactionMarker(kind is ControlRecordType.COMMIT, epoch)
    usual = marker(kind, epoch)
    others = (
        usual._replace(headers=(("h", b"v"),)),
        usual._replace(value=(usual.value or b"") + b"of a later version"),
        usual._replace(key=(usual.key or b"") + b"of a later version"),
        marker(kind, epoch, version=1),
    )
    for record in (usual, *others):
        assert read_transaction_marker(built(record)) == expected
    assert read_transaction_marker(built(usual, Codec.GZIP)) == expected


def test_another_control_batch_of_the_usual_size_is_no_marker() -> None:
    batch = built(marker(ControlRecordType.LEADER_CHANGE, 5))
    assert len(batch) == USUAL_MARKER_SIZE and read_transaction_marker(batch) is None


@pytest.mark.parametrize(
    "record",
    [
        Record(b"\xff\xff\0\0", END_TRANSACTION_MARKER.pack(0, 5)),
        Record(encode_control_key(ControlRecordType.COMMIT), END_TRANSACTION_MARKER.pack(-1, 5)),
    ],
    ids=["version of the key", "version of the value"],
)
def test_a_negative_version_is_malformed(record: Record) -> None:
    batch = built(record)
    assert len(batch) == USUAL_MARKER_SIZE
    with pytest.raises(MalformedMessage):
        read_transaction_marker(batch)


def test_a_record_of_another_shape_and_the_usual_size_is_read_as_it_is() -> None:
    """The key is one byte longer, and the value one shorter."""
    batch = built(Record(encode_control_key(ControlRecordType.COMMIT) + b"x", b"\0\0\0\0\0"))
    assert len(batch) == USUAL_MARKER_SIZE
    with pytest.raises(MalformedMessage):
        read_transaction_marker(batch)
