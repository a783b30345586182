"""The records of `__remote_log_metadata`, byte for byte as Apache Kafka 4.3.1's serializer writes them.

`apache_bytes.txt` was written by `tests/conformance/java/facts/RemoteLogFacts.java`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.tiered.metadata.records import RemoteChange, decode_change, encode_change, metadata_partition
from moldau.storage.tiered.metadata.remote_segment import (
    PartitionDelete,
    PartitionDeleteState,
    RemotePartition,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

LINES = [line.split() for line in Path(__file__).with_name("apache_bytes.txt").read_text().splitlines()]
BYTES = {line[0]: bytes.fromhex(line[1]) for line in LINES if line[0] != "partition"}

ORDERS = RemotePartition("orders", bytes.fromhex("0102030405060708890a0b0c0d0e0f10"), 3)
ID = bytes.fromhex("f1e2d3c4b5a697881122334455667788")
TWO_EPOCHS = (EpochStart(7, 100), EpochStart(9, 150))
STARTED = RemoteSegment(ID, 100, 199, 2, 1700000000123, 1700000001000, TWO_EPOCHS[:1], 1048576)
FINISHED = replace(
    STARTED, epochs=TWO_EPOCHS, state=SegmentState.COPY_SEGMENT_FINISHED, custom_metadata=bytes([1, 2, 3])
)
CHANGES: dict[str, RemoteChange] = {
    "started": STARTED,
    "started_without_transactions": replace(STARTED, epochs=TWO_EPOCHS, has_transaction_index=False),
    "finished_with_custom": replace(FINISHED, max_timestamp_ms=-1),
    **{f"update_{state}": SegmentUpdate(ID, 4, 1700000002000, state) for state in list(SegmentState)[1:]},
    "update_with_custom": SegmentUpdate(ID, 4, 1700000002000, SegmentState(1), bytes([1, 2, 3])),
    **{f"delete_{state}": PartitionDelete(5, 1700000003000, state) for state in PartitionDeleteState},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_written_and_read_as_by_apache_kafka(name: str) -> None:
    assert encode_change(ORDERS, CHANGES[name]) == BYTES[name]
    assert decode_change(BYTES[name]) == (ORDERS, CHANGES[name])


def test_the_snapshot_form_is_read() -> None:
    assert decode_change(BYTES["snapshot"]) == (None, replace(FINISHED, has_transaction_index=False))


def test_every_fact_is_used() -> None:
    assert set(BYTES) == {*CHANGES, "snapshot"}


@pytest.mark.parametrize("line", [line for line in LINES if line[0] == "partition"], ids=lambda line: line[1])
def test_the_partition_of_the_metadata_topic_is_apache_kafkas(line: list[str]) -> None:
    _, topic_id, partition, count, chosen = line
    assert metadata_partition(RemotePartition("t", bytes.fromhex(topic_id), int(partition)), int(count)) == int(chosen)


@pytest.mark.parametrize(
    "segment",
    [
        replace(STARTED, epochs=()),
        replace(STARTED, epochs=TWO_EPOCHS[::-1]),
        replace(STARTED, epochs=(EpochStart(7, 100), EpochStart(8, 100))),
        replace(STARTED, last_offset=99),
        replace(STARTED, epochs=(EpochStart(7, 200),)),
        replace(STARTED, start_offset=-1),
        replace(STARTED, size=-1),
    ],
    ids=lambda segment: str((segment.start_offset, segment.last_offset, segment.epochs)),
)
def test_a_segment_that_cannot_be_is_refused(segment: RemoteSegment) -> None:
    with pytest.raises(MalformedMessage):
        decode_change(encode_change(ORDERS, segment))


@pytest.mark.parametrize("name", ["update_1", "delete_0", "started"])
def test_an_unknown_state_is_refused(name: str) -> None:
    damaged = bytearray(BYTES[name])
    damaged[-2] = 9
    with pytest.raises(MalformedMessage, match="State 9"):
        decode_change(damaged)


@pytest.mark.parametrize("name", BYTES)
def test_every_prefix_is_refused(name: str) -> None:
    for size in range(len(BYTES[name])):
        with pytest.raises(MalformedMessage):
            decode_change(BYTES[name][:size])
