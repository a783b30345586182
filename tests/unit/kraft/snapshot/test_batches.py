"""Snapshots as bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.snapshot.batches import BATCH_RECORDS_MAX, load_snapshot, read_snapshot, snapshot_batches
from moldau.kraft.snapshot.names import SnapshotId, parse_snapshot_name, snapshots_in
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import MalformedMessage
from tests.unit.kraft.image.images import everything, image_of, topic, uuid

VOTERS = VoterSet.from_voters([VoterNode(1, uuid(1001), (("CONTROLLER", ("127.0.0.1", 9093)),))])
QUORUM = QuorumDescription(1, VOTERS)

# The 0-0 checkpoint that kafka-storage 4.3.1 wrote for this voter, its timestamps (and so its checksums) apart.
BATCH_SIZES_OF_KAFKA = [166, 75]


def snapshot(records: list[object], quorum: QuorumDescription = QUORUM) -> bytes:
    batches = snapshot_batches(records, quorum, metadata_version=30, epoch=3, last_contained_ms=5, now_ms=6)
    return b"".join(batches)


def test_a_snapshot_comes_back() -> None:
    image = image_of(everything())
    content = read_snapshot(snapshot(list(image.snapshot_records())))
    assert image_of(content.records) == image
    assert content.quorum == QUORUM


def test_batches_are_bounded_and_offsets_count_from_zero() -> None:
    records = topic("big", 7, 3 * BATCH_RECORDS_MAX)
    headers = [header for _, header in iterate_batches(snapshot(records))]
    assert [header.is_control for header in headers] == [True, False, False, False, False, True]
    assert headers[0].base_offset == 0
    for before, after in pairwise(headers):
        assert after.base_offset == before.next_offset
    assert {header.partition_leader_epoch for header in headers} == {3}


def test_the_sizes_are_those_of_kafkas_first_checkpoint() -> None:
    headers = [header for _, header in iterate_batches(snapshot([]))]
    assert [header.size for header in headers] == BATCH_SIZES_OF_KAFKA


def test_kraft_version_0_keeps_voters_out() -> None:
    content = read_snapshot(snapshot([], QuorumDescription(0, VOTERS)))
    assert content.quorum == QuorumDescription()


def test_every_strict_prefix_is_refused() -> None:
    data = snapshot(topic("a", 7))
    for size in range(len(data)):
        with pytest.raises(MalformedMessage):
            load_snapshot(data[:size], SnapshotId(1, 1))


def test_a_flipped_bit_is_seen() -> None:
    data = bytearray(snapshot(topic("a", 7)))
    data[-3] ^= 1
    with pytest.raises(MalformedMessage, match="checksum"):
        load_snapshot(bytes(data), SnapshotId(1, 1))


def test_names() -> None:
    assert SnapshotId(14, 3).file_name == "00000000000000000014-0000000003.checkpoint"
    assert parse_snapshot_name("00000000000000000014-0000000003.checkpoint") == SnapshotId(14, 3)
    others = ["quorum-state", "bootstrap.checkpoint", "leader-epoch-checkpoint", "00000000000000000014.log"]
    others += ["00000000000000000014-0000000003.checkpoint.part", "14-3.checkpoint"]
    assert all(parse_snapshot_name(name) is None for name in others)
    names = [SnapshotId(20, 3).file_name, *others, SnapshotId(3, 9).file_name]
    assert snapshots_in(names) == [SnapshotId(3, 9), SnapshotId(20, 3)]
