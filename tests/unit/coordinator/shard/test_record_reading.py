"""The quick reader of many records says what the reader of one record says, in the same order."""

from __future__ import annotations

from random import Random

import pytest

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.records import (
    CommittedOffset,
    LoadedChange,
    OffsetChange,
    OffsetsLoaded,
    RecordChange,
    TransactionEnded,
)
from moldau.coordinator.runtime.log_reading import LogReader, RecordReader
from moldau.coordinator.shard.kinds import record_of
from moldau.coordinator.shard.record_reading import RECORDS_AT_ONCE, GroupRecordReader
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compiler import encode
from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.offsets import GroupMetadataKey, OffsetCommitValue
from moldau.protocol.records.record_frames import type_prefix
from tests.support.one_by_one import OneByOne

ALL_COMMITTED = 1 << 60


def some_record(random: Random, *, is_sound: bool) -> Record:
    """Of few groups and topics, in every version and shape; if `is_sound` is false now and then damaged."""
    partition = random.choice((0, 1, 0x7FFFFFFF, -1))
    group = random.choice(("g", "group", "", "g" * 100))
    topic = random.choice(("t", "topic", "tt\0"))
    record = record_of(OffsetChange(group, topic, partition, CommittedOffset(1)), random.choice((7, 1 << 40)))
    version = random.randint(0, 4)
    value = OffsetCommitValue(
        offset=random.randint(-1, 1 << 62),
        leader_epoch=random.randint(-1, 9) if version >= 3 else -1,
        metadata=random.choice(("", "", "", "m", "x" * 16, "x" * 18)),
        commit_timestamp=random.randint(-1, 1 << 50),
        topic_id=random.choice((bytes(16), bytes(range(16)))) if version == 4 else bytes(16),
    )
    data = bytearray(type_prefix(version) + encode(value, version))
    key = random.choice((b"\0\0", b"\0\1")) + (record.key or b"")[2:]
    if not is_sound and random.random() < 0.2:
        data[random.randrange(len(data))] = random.randrange(256)
    if not is_sound and random.random() < 0.1:
        data = data[: random.randrange(len(data))]
    if not is_sound and random.random() < 0.05:
        key = key[: random.randrange(len(key))]
    headers = (("h", b"v"),) if random.random() < 0.05 else ()
    kind = random.random()
    if kind < 0.05:
        return record_of(RecordChange(group, GroupMetadataKey(group=group), None), 7)
    if kind < 0.08:
        return Record(type_prefix(1_000) + b"what a later release writes", b"", 7)
    return Record(key, random.choice((None, *[bytes(data)] * 9)), record.timestamp, headers)


def log_of(random: Random, *, is_sound: bool) -> bytes:
    log = bytearray()
    offset = 0
    for _ in range(random.randint(1, 8)):
        records = [some_record(random, is_sound=is_sound) for _ in range(random.randint(1, 20))]
        producer_id = random.choice((-1, -1, 7, 8))
        log += build_batch(
            records,
            base_offset=offset,
            codec=random.choice((Codec.NONE, Codec.NONE, Codec.GZIP)),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            is_transactional=producer_id >= 0,
        )
        offset += len(records)
        if producer_id >= 0 and random.random() < 0.7:
            log += end_transaction_marker(
                commits=random.random() < 0.5,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=7,
                base_offset=offset,
            )
            offset += 1
    return bytes(log)


def loaded(log: bytes, records: RecordReader[LoadedChange]) -> GroupShard:
    """A shard that has replayed the log."""
    shard = GroupShard(GroupConfig(), ALL_COMMITTED)
    for change, end_offset in LogReader(0, records).read(log):
        shard.replay(change, end_offset)
    return shard


def known_to(shard: GroupShard) -> tuple[object, object, set[str]]:
    """The offsets by group, those of open transactions in the order of their records, and the groups."""
    groups = shard._offsets._committed
    offsets = {group_id: group.offsets for group_id, group in groups.items()}
    pending = {
        (group_id, key): list(values.items())
        for group_id, group in groups.items()
        for key, values in group.pending.items()
    }
    return offsets, pending, set(shard._groups)


@pytest.mark.parametrize("seed", range(80))
def test_both_readers_say_the_same(seed: int) -> None:
    log = log_of(Random(seed), is_sound=True)
    quick, slow = loaded(log, GroupRecordReader()), loaded(log, OneByOne())
    assert known_to(quick) == known_to(slow)
    for shard in (quick, slow):
        for producer_id in (8, 7):
            shard.replay(TransactionEnded(producer_id, True), 1)
    assert known_to(quick) == known_to(slow)
    assert known_to(quick)[1] == {}


@pytest.mark.parametrize("seed", range(80))
def test_both_readers_refuse_the_same(seed: int) -> None:
    log = log_of(Random(seed), is_sound=False)
    try:
        slow = loaded(log, OneByOne())
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            loaded(log, GroupRecordReader())
    else:
        assert known_to(loaded(log, GroupRecordReader())) == known_to(slow)


@pytest.mark.parametrize("seed", range(40))
def test_both_readers_refuse_the_same_framing(seed: int) -> None:
    """A batch whose checksum was computed over damaged bytes."""
    random = Random(seed)
    batch = bytearray(build_batch([some_record(random, is_sound=True) for _ in range(3)]))
    for _ in range(random.randint(1, 3)):
        batch[random.randrange(HEADER_SIZE, len(batch))] = random.randrange(256)
    (_, header) = next(iterate_batches(bytes(batch)))
    answers: list[object] = []
    for reader in (GroupRecordReader(), OneByOne()):
        shard = GroupShard(GroupConfig(), ALL_COMMITTED)
        try:
            reader.read(bytes(batch), 0, header)
            for change in reader.take_changes():
                shard.replay(change, 1)
            answers.append(known_to(shard))
        except MalformedMessage:
            answers.append(None)
    assert answers[0] == answers[1]


def test_commits_that_follow_one_another_are_one_change_with_the_last_of_each_offset() -> None:
    records = [record_of(OffsetChange("g", "t", index % 2, CommittedOffset(index)), 7) for index in range(10)]
    (found,) = LogReader(0, GroupRecordReader()).read(build_batch(records))
    assert found == (OffsetsLoaded({"g": {("t", 0): CommittedOffset(8), ("t", 1): CommittedOffset(9)}}), 10)


def test_what_is_no_commit_comes_in_its_place() -> None:
    commit = record_of(OffsetChange("g", "t", 0, CommittedOffset(1)), 7)
    tombstones = [
        record_of(OffsetChange("g", "t", 0, None), 7),
        record_of(RecordChange("g", GroupMetadataKey(group="g"), None), 7),
    ]
    found = LogReader(0, GroupRecordReader()).read(build_batch([commit, *tombstones, commit]))
    assert [each.change for each in found] == [
        OffsetsLoaded({"g": {("t", 0): CommittedOffset(1)}}),
        OffsetChange("g", "t", 0, None),
        RecordChange("g", GroupMetadataKey(group="g"), None),
        OffsetsLoaded({"g": {("t", 0): CommittedOffset(1)}}),
    ]


def test_commits_of_a_transaction_are_one_change_up_to_its_end() -> None:
    def batch(offset: int, producer_id: int) -> bytes:
        return build_batch(
            [record_of(OffsetChange("g", "t", 0, CommittedOffset(offset)), 7)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            is_transactional=producer_id >= 0,
        )

    marker = end_transaction_marker(
        commits=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=7, base_offset=4
    )
    log = batch(0, 7) + batch(1, 7) + batch(2, 8) + batch(3, -1) + marker
    found = LogReader(0, GroupRecordReader()).read(log)
    assert [each.change for each in found] == [
        OffsetsLoaded({"g": {("t", 0): CommittedOffset(1)}}, 7),
        OffsetsLoaded({"g": {("t", 0): CommittedOffset(2)}}, 8),
        OffsetsLoaded({"g": {("t", 0): CommittedOffset(3)}}),
        TransactionEnded(7, False),
    ]


def test_a_batch_of_more_records_than_are_read_at_once() -> None:
    count = 2 * RECORDS_AT_ONCE + 1
    records = [record_of(OffsetChange("g", "t", index, CommittedOffset(index)), 7) for index in range(count)]
    (found,) = LogReader(0, GroupRecordReader()).read(build_batch(records))
    assert found.change == OffsetsLoaded({"g": {("t", index): CommittedOffset(index) for index in range(count)}})


def test_names_that_come_again_are_one_object() -> None:
    records = [record_of(OffsetChange("a group", "a topic", index, CommittedOffset(index)), 7) for index in range(3)]
    (found,) = LogReader(0, GroupRecordReader()).read(build_batch(records))
    assert isinstance(found.change, OffsetsLoaded)
    assert len({id(topic) for topic, _ in found.change.offsets["a group"]}) == 1
