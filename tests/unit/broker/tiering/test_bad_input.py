"""Bad input from the storage: a named error that says which object, and nothing of it reaches a consumer."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.pins import pin_key
from moldau.testing.simulation.storage import SimulatedBucket
from tests.support.node import Node
from tests.support.tiered_node import (
    URL,
    copied,
    fill,
    followed_of,
    partition_of,
    serve_tiered,
    tiered_topic,
    tiering_of,
    until,
)

Spoil = Callable[[SimulatedBucket, RemotePartition, RemoteSegment, RemoteSegment], str]
"""Spoils an object of a segment, next to another segment; the key."""


def key_of(kind: ObjectKind, key: RemotePartition, segment: RemoteSegment) -> str:
    return object_key(key, segment.start_offset, segment.segment_id, kind)


def a_changed_byte(kind: ObjectKind, position: int) -> Spoil:
    def spoil(bucket: SimulatedBucket, key: RemotePartition, segment: RemoteSegment, _: RemoteSegment) -> str:
        name = key_of(kind, key, segment)
        bucket.damage(name, position)
        return name

    return spoil


def cut_short(kind: ObjectKind) -> Spoil:
    def spoil(bucket: SimulatedBucket, key: RemotePartition, segment: RemoteSegment, _: RemoteSegment) -> str:
        name = key_of(kind, key, segment)
        bucket.store(name, bucket.contents()[name][:30])
        return name

    return spoil


def of_another_segment(kind: ObjectKind) -> Spoil:
    def spoil(bucket: SimulatedBucket, key: RemotePartition, segment: RemoteSegment, other: RemoteSegment) -> str:
        name = key_of(kind, key, segment)
        bucket.store(name, bucket.contents()[key_of(kind, key, other)])
        return name

    return spoil


def gone(kind: ObjectKind) -> Spoil:
    def spoil(bucket: SimulatedBucket, key: RemotePartition, segment: RemoteSegment, _: RemoteSegment) -> str:
        name = key_of(kind, key, segment)
        del bucket.objects[name]
        return name

    return spoil


def another_field(field: str, value: object) -> Spoil:
    def spoil(bucket: SimulatedBucket, key: RemotePartition, segment: RemoteSegment, _: RemoteSegment) -> str:
        name = key_of(ObjectKind.MANIFEST, key, segment)
        bucket.store(name, json.dumps(json.loads(bucket.contents()[name]) | {field: value}).encode())
        return name

    return spoil


LOG, INDEX, MANIFEST = ObjectKind.LOG, ObjectKind.OFFSET_INDEX, ObjectKind.MANIFEST


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(a_changed_byte(LOG, 70), "checksum of the batch", id="records with a changed byte"),
        pytest.param(a_changed_byte(LOG, 10), "batch", id="a header with a changed byte"),
        pytest.param(cut_short(LOG), "ends", id="records that end early"),
        pytest.param(of_another_segment(LOG), "offsets of another segment", id="records of another segment"),
        pytest.param(gone(LOG), "does not exist", id="no records"),
        pytest.param(a_changed_byte(MANIFEST, 0), "is not JSON", id="a manifest that is not JSON"),
        pytest.param(of_another_segment(MANIFEST), "of another segment", id="the manifest of another segment"),
        pytest.param(gone(MANIFEST), "does not exist", id="no manifest"),
        pytest.param(another_field("cluster_id", "another"), "belongs to the cluster another", id="another cluster's"),
        pytest.param(another_field("format_version", 2), "format version 2", id="a later format"),
        pytest.param(another_field("last_offset", 10**6), "another segment", id="a wrong range"),
        pytest.param(another_field("objects", {}), "the field objects", id="a manifest without objects"),
        pytest.param(another_field("topic", "u"), "another segment", id="another topic's"),
    ],
)
def test_nothing_is_served_of_what_is_not_as_it_should_be(
    spoil: Spoil, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1, index_interval_bytes=1)
        await fill(client)
        log = partition_of(node).log
        await until(lambda: log.segments == [log.active], "the copied segments are deleted here")
        first, second, third = copied(node)[:3]
        name = spoil(node.world.buckets[URL], followed_of(node).key, second, third)
        caplog.clear()
        answer = await client.fetch("t", second.start_offset, max_wait_ms=2000)
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "clients report it, as with Apache Kafka"
        assert not answer.records
        told = [each.getMessage() for each in caplog.records if "cannot be read remotely" in each.getMessage()]
        assert told and said in told[0] and name in told[0] and f"offset {second.start_offset} of t-0" in told[0]
        assert (await client.fetch("t", first.start_offset, max_wait_ms=2000)).error_code == 0
        assert (await client.fetch("t", log.active.base_offset)).error_code == 0
        assert tiering_of(node).source.failures > 0

    serve_tiered(story)


@pytest.mark.parametrize(
    "spoil", [a_changed_byte(INDEX, 3), a_changed_byte(ObjectKind.TIME_INDEX, 3), cut_short(INDEX), gone(INDEX)]
)
def test_a_segment_without_its_indexes_is_read(spoil: Spoil) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1, index_interval_bytes=1)
        await fill(client)
        log = partition_of(node).log
        await until(lambda: log.segments == [log.active], "the copied segments are deleted here")
        second, third = copied(node)[1:3]
        spoil(node.world.buckets[URL], followed_of(node).key, second, third)
        for offset in range(second.start_offset, third.start_offset):
            answer = await client.fetch("t", offset, max_wait_ms=2000)
            assert answer.error_code == 0 and answer.records

    serve_tiered(story)


def test_a_pin_that_cannot_be_read_is_told_and_holds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await tiered_topic(client, local_retention_bytes=1, retention_bytes=900)
        await fill(client, count=6)
        await until(lambda: copied(node), "segments are copied")
        name = pin_key(followed_of(node).key, "broken")
        node.world.buckets[URL].store(name, b"{")
        await fill(client, count=40)
        await until(lambda: tiering_of(node).copier.segments_deleted > 2, "retention deletes")
        assert any(name in each.getMessage() for each in caplog.records)

    serve_tiered(story)
