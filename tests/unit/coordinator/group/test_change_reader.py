"""The quick reader of many records says what the reader of one says."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.group.change_reader import ChangeReader
from coordinator.group.records import CommittedOffset, OffsetChange, change_of, record_of, type_prefix
from protocol.compiler import encode
from protocol.primitives import MalformedMessage
from protocol.record_builder import Record
from protocol.records.offsets import OffsetCommitValue


def some_record(random: Random) -> Record:
    """Of few groups and topics, in every version and shape, now and then damaged."""
    partition = random.choice((0, 1, 0x7FFFFFFF))
    group, topic = random.choice(("g", "group", "")), random.choice(("t", "topic", "tt\0"))
    record = record_of(OffsetChange(group, topic, partition, CommittedOffset(random.randint(0, 1 << 62))), 7)
    version = random.randint(0, 4)
    value = OffsetCommitValue(
        offset=random.randint(-1, 1 << 62),
        leader_epoch=random.randint(-1, 9) if version >= 3 else -1,
        metadata=random.choice(("", "", "m", "x" * 16, "x" * 18)),
        commit_timestamp=random.randint(-1, 1 << 50),
        topic_id=random.choice((bytes(16), bytes(range(16)))) if version == 4 else bytes(16),
    )
    data = bytearray(type_prefix(version) + encode(value, version))
    if random.random() < 0.2:
        data[random.randrange(len(data))] = random.randrange(256)
    if random.random() < 0.1:
        data = data[: random.randrange(len(data))]
    assert record.key is not None
    return Record(random.choice((b"\0\0", b"\0\1")) + record.key[2:], random.choice((None, *[bytes(data)] * 9)))


@pytest.mark.parametrize("seed", range(20))
def test_both_say_the_same(seed: int) -> None:
    random, reader = Random(seed), ChangeReader()
    for _ in range(300):
        record = some_record(random)
        try:
            expected = change_of(record)
        except MalformedMessage:
            with pytest.raises(MalformedMessage):
                reader.read(record)
        else:
            assert reader.read(record) == expected


def test_names_that_come_again_are_one_object() -> None:
    reader = ChangeReader()
    records = [record_of(OffsetChange("a group", "a topic", index, CommittedOffset(index)), 7) for index in range(3)]
    changes = [reader.read(record) for record in records]
    assert len({id(change.topic) for change in changes if isinstance(change, OffsetChange)}) == 1
