"""What the metadata says becomes this broker's partitions, at start and with every change."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable

import pytest

from moldau.broker.replicas import partition_work
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.records.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.support.node import Node, batch, serve_and

WIDE = 60
WIDE_ID = (7).to_bytes(16, "big")


def test_internal_topics_are_marked_at_their_creation_and_at_every_start() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("__consumer_offsets", 2)
        await client.create("t")
        for _ in range(2):
            marks = {each.topic: each.is_internal for each in node.broker.replicas}
            assert marks == {"__consumer_offsets": True, "t": False}
            node.host.kill()
            node.boot()
            await node.connect()

    serve_and(story)


def test_partitions_have_the_leader_and_the_epoch_that_the_metadata_gives() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", 2)
        for index in range(2):
            partition = node.broker.replicas.by_id[topic_id][index]
            assigned = node.broker.image.topics.by_id[topic_id].partitions[index]
            assert (partition.leader_id, partition.leader_epoch) == (assigned.leader, assigned.leader_epoch)
            assert partition.isr == (1,)

    serve_and(story)


def test_a_topic_deleted_while_the_broker_is_away_is_gone_when_it_comes_back() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.create("stays")
        await client.produce("stays", batch("a"))
        client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        await client.reply()
        node.host.kill()
        node.boot()
        client = await node.connect()
        await asyncio.sleep(1)
        assert [each.topic for each in node.broker.replicas] == ["stays"]
        assert (await client.fetch("stays")).high_watermark == 1

    serve_and(story)


def test_a_setting_without_effect_is_told_once_whatever_the_number_of_topics(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("a", "b"):
            await client.create(name, preallocate="true")
        first = [each.message for each in caplog.records if "has no effect" in each.message]
        assert [each.partition(" has no effect")[0] for each in first] == [
            "set on topic a: preallocate",
        ]
        caplog.clear()
        node.host.kill()
        node.boot()
        await node.connect()
        again = [each.message for each in caplog.records if "preallocate has no effect" in each.message]
        assert [each.partition(": ")[0] for each in again] == ["set on topic a and on 1 more topics"]

    serve_and(story)


def publish(node: Node, records: Iterable[object]) -> None:
    """Publish records that another controller has written."""
    publisher = node.broker.publisher
    publisher.publish_records([*records], publisher.image.provenance)


def publish_wide(node: Node, indexes: Iterable[int] = range(WIDE)) -> None:
    """A topic of many partitions, led by this broker."""
    made = [
        PartitionRecord(
            partition_id=index,
            topic_id=WIDE_ID,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        )
        for index in indexes
    ]
    publish(node, [TopicRecord(name="wide", topic_id=WIDE_ID), *made])


def move(node: Node, topic_id: bytes, index: int, *, to: int) -> None:
    publish(
        node,
        [
            PartitionChangeRecord(
                partition_id=index, topic_id=topic_id, replicas=[to], isr=[to], leader=to, directories=[bytes(16)]
            )
        ],
    )


async def until_made(node: Node) -> None:
    made = asyncio.get_running_loop().create_future()
    node.broker.partition_work.when_done(lambda: made.set_result(None))
    await made


def wide_directories(node: Node) -> list[str]:
    return [name for name in node.host.disk.list_directory("/data") if name.startswith("wide-") and "." not in name]


def test_a_replica_that_left_before_its_log_was_made_is_made_when_it_comes_back() -> None:
    async def story(node: Node) -> None:
        await node.connect()
        publish_wide(node)
        assert node.broker.replicas.is_expected(WIDE_ID, WIDE - 1)
        move(node, WIDE_ID, WIDE - 1, to=2)
        await until_made(node)
        assert not node.broker.replicas.is_expected(WIDE_ID, WIDE - 1)
        move(node, WIDE_ID, WIDE - 1, to=1)
        assert len(node.broker.replicas.by_name["wide"]) == len(wide_directories(node)) == WIDE

    serve_and(story)


@pytest.mark.parametrize("pause_s", [0, 0.0001])
def test_a_replica_that_leaves_and_comes_back_before_its_log_is_made_is_made_once(pause_s: float) -> None:
    async def story(node: Node) -> None:
        await node.connect()
        publish_wide(node, range(20))
        for index in (0, 19):
            move(node, WIDE_ID, index, to=2)
        await asyncio.sleep(pause_s)
        for index in (0, 19):
            move(node, WIDE_ID, index, to=1)
        await until_made(node)
        assert len(node.broker.replicas.by_name["wide"]) == len(wide_directories(node)) == 20

    serve_and(story)


def test_the_others_of_a_topic_stay_expected_when_its_only_served_replica_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_work, "SLICE_COUNT", 1)

    async def story(node: Node) -> None:
        await node.connect()
        publish_wide(node)
        while not node.broker.replicas.by_name["wide"]:
            await asyncio.sleep(0.0001)
        (served,) = node.broker.replicas.by_name["wide"]
        move(node, WIDE_ID, served, to=2)
        assert node.broker.replicas.is_expected(WIDE_ID, WIDE - 1)
        monkeypatch.setattr(partition_work, "SLICE_COUNT", WIDE)
        publish(node, [PartitionChangeRecord(partition_id=WIDE - 1, topic_id=WIDE_ID, isr=[1])])
        await until_made(node)
        assert len(node.broker.replicas.by_name["wide"]) == len(wide_directories(node)) == WIDE - 1

    serve_and(story)


def test_a_topic_is_forgotten_when_its_only_expected_replica_is_not_made() -> None:
    async def story(node: Node) -> None:
        await node.connect()
        publish_wide(node)
        for index in range(WIDE):
            move(node, WIDE_ID, index, to=2)
        await until_made(node)
        assert WIDE_ID not in node.broker.replicas.by_id and "wide" not in node.broker.replicas.by_name
        assert not wide_directories(node)

    serve_and(story)


def test_a_replica_that_could_not_be_made_and_left_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        await node.connect()
        with monkeypatch.context() as full:
            full.setattr(node.broker.logs, "create", no_space)
            publish_wide(node, [0])
        assert node.broker.replicas.is_offline(WIDE_ID, 0)
        move(node, WIDE_ID, 0, to=2)
        assert not node.broker.replicas.is_offline(WIDE_ID, 0)
        node.broker.applier.make_missing()
        assert node.broker.replicas.get("wide", 0) is None and not wide_directories(node)
        move(node, WIDE_ID, 0, to=1)
        assert node.broker.replicas.get("wide", 0) is not None

    serve_and(story)


def test_a_replica_that_left_a_failed_directory_is_made_in_another_one() -> None:
    """The next start, when the failed directory is back, keeps the copy in the directory that the metadata names."""

    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", 2)
        broken = next(each for each in node.broker.replicas if each.log.directory.startswith("/data2/"))
        index = broken.index
        node.host.disk.break_directory("/data2")
        refused = await client.produce("t", batch("a"), partition=index)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR and node.broker.replicas.is_offline(topic_id, index)
        move(node, topic_id, index, to=2)
        assert node.broker.replicas.offline_count == 0
        move(node, topic_id, index, to=1)
        made = node.broker.replicas.get("t", index)
        assert made is not None and made.log.directory.startswith("/data/")
        await asyncio.sleep(1)
        node.host.kill()
        node.host.disk.mend_directories()
        node.boot()
        await node.connect()
        again = node.broker.replicas.get("t", index)
        assert again is not None and again.log.directory == made.log.directory
        strays = [name for name in node.host.disk.list_directory("/data2") if name.endswith("-stray")]
        assert [name.partition(".")[0] for name in strays] == [f"t-{index}"]

    serve_and(story, log_dirs="/data,/data2")


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space")
