"""Dead letters of share groups: which records become some, their records, and what a topic needs to hold them.

The headers and the texts were observed on Apache Kafka 4.4.0.
"""

from __future__ import annotations

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.replication.share.changes import DeadLetter, StateWrite
from moldau.replication.share.dead_letters import (
    DeadLetterSource,
    DeadLetterTopic,
    collect_source_records,
    next_dead_letter_batch,
    refusal_of_queue,
)
from tests.support.share_partition_stage import ACCEPT, LIMITS, REJECT, RELEASE, SharePartitionStage

DEAD = LIMITS._replace(delivery_count_max=2, has_dead_letters=True)
SOURCE = DeadLetterSource("g", "t", 3)
LETTER = DeadLetter(4, 6, 2, is_rejected=False)


def finish(stage: SharePartitionStage, *letters: DeadLetter) -> None:
    for letter in letters:
        stage.store(stage.partition.archive_dead_letter(letter))


def test_a_rejected_record_is_archived_once_the_queue_has_it() -> None:
    stage = SharePartitionStage((4,), DEAD)
    stage.acquire_records("m")
    write = stage.begin("m", 0, 3, ACCEPT, REJECT, REJECT, 0)
    assert isinstance(write, StateWrite)
    assert [each.delivery_state for each in write.batches] == [2, 3, 3, 4]
    assert stage.partition.take_dead_letters() == [], "the rejection is not stored yet"
    stage.store(write)
    (letter,) = stage.partition.take_dead_letters()
    assert letter == DeadLetter(1, 2, 1, is_rejected=True)
    assert stage.partition.start_offset == 1 and stage.acquire_records("m") == []
    finish(stage, letter)
    assert stage.partition.start_offset == 4 and stage.stored[1] == stage.stored[2] == (1, 4)


def test_a_record_that_used_up_its_deliveries_has_a_dead_letter() -> None:
    stage = SharePartitionStage((2,), DEAD)
    for _ in range(2):
        stage.acquire_records("m")
        assert stage.acknowledge("m", 0, 0, RELEASE) is None
        stage.pass_time(LIMITS.lock_duration_ms)  # The lock on the other record is over.
    letters = stage.partition.take_dead_letters()
    assert letters == [DeadLetter(0, 1, 2, is_rejected=False)]
    assert stage.states() == {0: ("ARCHIVING", 2), 1: ("ARCHIVING", 2)}
    finish(stage, *letters)
    assert stage.partition.start_offset == 2 and not stage.partition.take_dead_letters()


def test_a_rejection_that_is_not_stored_leaves_no_dead_letter() -> None:
    stage = SharePartitionStage((1,), DEAD)
    stage.acquire_records("m")
    write = stage.begin("m", 0, 0, REJECT)
    assert isinstance(write, StateWrite)
    stage.partition.finish_state_write(write, is_stored=False)
    assert stage.partition.take_dead_letters() == [] and stage.states() == {0: ("ACQUIRED", 1)}


def test_a_lock_that_ends_during_a_write_that_fails_leaves_a_dead_letter_at_the_last_delivery() -> None:
    stage = SharePartitionStage((1,), DEAD)
    stage.acquire_records("m")
    stage.acknowledge("m", 0, 0, RELEASE)
    stage.acquire_records("m")
    write = stage.begin("m", 0, 0, ACCEPT)
    assert isinstance(write, StateWrite)
    stage.pass_time(LIMITS.lock_duration_ms)
    stage.partition.finish_state_write(write, is_stored=False)
    assert stage.partition.take_dead_letters() == [DeadLetter(0, 0, 2, is_rejected=False)]


def test_another_leader_writes_the_dead_letters_again() -> None:
    stage = SharePartitionStage((4,), DEAD)
    stage.acquire_records("m")
    stage.acknowledge("m", 0, 1, REJECT)
    stage.acknowledge("m", 2, 3, RELEASE)
    stage.acquire_records("m")
    stage.acknowledge("m", 3, 3, RELEASE)
    assert len(stage.partition.take_dead_letters()) == 2
    stage.fail_over()
    again = stage.partition.take_dead_letters()
    assert again == [DeadLetter(0, 1, 1, is_rejected=True), DeadLetter(3, 3, 2, is_rejected=False)]
    finish(stage, *again)
    assert stage.states() == {2: ("AVAILABLE", 1), 3: ("ARCHIVED", 2)}


def test_without_a_queue_nothing_becomes_a_dead_letter() -> None:
    stage = SharePartitionStage((1,))
    stage.acquire_records("m")
    stage.acknowledge("m", 0, 0, REJECT)
    assert stage.partition.start_offset == 1 and not stage.partition.take_dead_letters()


def test_dead_letters_whose_records_are_deleted_meanwhile() -> None:
    stage = SharePartitionStage((2, 2), DEAD)
    stage.acquire_records("m")
    stage.acknowledge("m", 0, 1, REJECT)
    (letter,) = stage.partition.take_dead_letters()
    stage.partition.on_log_start_moved(2)
    finish(stage, letter)
    stage.acknowledge("m", 2, 3, ACCEPT)
    assert stage.partition.start_offset == 4 and stage.partition.delivery_complete_count == 0


def letters_in(batch: bytes) -> list[Record]:
    ((position, header),) = iterate_batches(batch)
    return list(records_of(batch, position, header))


def test_the_record_of_a_dead_letter() -> None:
    originals = {4: Record(b"k", b"v", 1, (("h", b"x"),)), 6: Record(None, b"w")}
    batch, next_offset = next_dead_letter_batch(SOURCE, LETTER, originals, range(4, 7), 5_000, 1_000_000)
    assert next_offset == 7
    records = letters_in(batch)
    assert [(each.key, each.value, each.timestamp) for each in records] == [
        (b"k", b"v", 5_000),
        (None, None, 5_000),
        (None, b"w", 5_000),
    ]
    assert records[1].headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"5"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    )
    rejected, _ = next_dead_letter_batch(SOURCE, LETTER._replace(is_rejected=True), {}, range(4, 5), 0, 1_000)
    assert letters_in(rejected)[0].headers[-1] == ("__dlq.errors.message", b"Offset rejected by client.")


@pytest.mark.parametrize("size_max", [1, 300, 500, 700, 10_000])
def test_a_batch_holds_what_the_topic_allows_and_at_least_one_record(size_max: int) -> None:
    offsets, found = range(4, 30), []
    while offsets:
        batch, next_offset = next_dead_letter_batch(SOURCE, LETTER, {}, offsets, 0, size_max)
        assert len(batch) <= size_max or next_offset == offsets.start + 1
        found += [dict(each.headers)["__dlq.errors.offset"] for each in letters_in(batch)]
        offsets = range(next_offset, offsets.stop)
    assert found == [str(offset).encode() for offset in range(4, 30)]


@pytest.mark.parametrize(
    ("name", "prefix", "is_enabled", "may_be_created", "reason"),
    [
        ("dlq.x", "dlq.", True, False, None),
        ("dlq.x", "dlq.", None, True, None),
        ("x", "", True, False, None),
        ("", "dlq.", None, True, "names no topic"),
        ("__x", "", True, True, "begins with __"),
        ("dlq.x", "dlq.", False, True, "errors.deadletterqueue.group.enable is not true"),
        ("dlq.x", "dlq.", None, False, "does not exist"),
        ("x", "dlq.", True, True, "does not begin with dlq."),
    ],
)
def test_what_a_topic_needs(
    name: str, prefix: str, is_enabled: bool | None, may_be_created: bool, reason: str | None
) -> None:
    refusal = refusal_of_queue(DeadLetterTopic(name, prefix, is_enabled, may_be_created))
    assert refusal is None if reason is None else refusal is not None and reason in refusal


def batch_of(first: int, *values: bytes, codec: Codec = Codec.NONE, is_control: bool = False) -> bytes:
    return build_batch([Record(value=value) for value in values], base_offset=first, codec=codec, is_control=is_control)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_source_records_are_found_in_fetched_batches(codec: Codec) -> None:
    fetched = batch_of(0, b"0", b"1", b"2", codec=codec) + batch_of(3, b"m", is_control=True) + batch_of(4, b"4", b"5")
    found = collect_source_records(fetched + b"torn", range(1, 5), 100)
    assert {offset: record.value for offset, record in found.records.items()} == {1: b"1", 2: b"2", 4: b"4"}
    assert (found.size, found.next_offset, found.is_full) == (3, 6, False)


def test_no_source_record_is_found_in_damaged_batches() -> None:
    """An exception would stop the node, which writes dead letters in a task."""
    damaged = batch_of(1, b"1").replace(b"\x02", b"\x07", 1)  # the magic
    with pytest.raises(MalformedMessage):
        list(iterate_batches(damaged))
    found = collect_source_records(batch_of(0, b"0") + damaged, range(2), 100)
    assert (found.records, found.next_offset, found.is_full) == ({}, 0, False)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_source_records_of_one_round_are_bounded(codec: Codec) -> None:
    fetched = batch_of(0, b"a" * 60, b"b" * 60, b"c", codec=codec)
    first = collect_source_records(fetched, range(3), 100)
    assert (list(first.records), first.next_offset, first.is_full) == ([0], 1, True)
    rest = collect_source_records(fetched, range(1, 3), 100)
    assert (list(rest.records), rest.next_offset, rest.is_full) == ([1, 2], 3, False)


def test_a_record_that_is_larger_than_the_bound_is_left_out() -> None:
    found = collect_source_records(batch_of(0, b"a" * 200, b"b"), range(2), 100)
    assert (list(found.records), found.next_offset, found.is_full) == ([1], 2, False)
    zipped = collect_source_records(
        batch_of(0, b"a" * 50_000, b"b", codec=Codec.ZSTD) + batch_of(2, b"c"), range(3), 100
    )
    assert (list(zipped.records), zipped.next_offset) == ([2], 3)
