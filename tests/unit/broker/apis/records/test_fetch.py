"""Fetch: what is read, how long it waits, and what ends the waiting."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from moldau.broker.apis.records.fetch import COLD_LOOKUPS_MAX
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.fetch import FetchResponse, ForgottenTopic, PartitionData, ReplicaState
from moldau.protocol.record_builder import Record, build_batch
from moldau.testing.simulation.disk_calls import Operation
from tests.support.node import Client, Node, batch, fetch_request, produce_request, serve_and

BATCH_SIZE = len(batch("a"))


def now_s() -> float:
    return asyncio.get_running_loop().time()


def content(data: PartitionData) -> bytes:
    return bytes(cast("bytes", data.records))


def offsets(data: PartitionData) -> list[int]:
    """Base offsets of the batches read."""
    return [header.base_offset for _, header in iterate_batches(content(data))]


async def filled(node: Node, name: str = "t", count: int = 3, partitions: int = 1) -> tuple[Client, bytes]:
    """A client, and the id of a topic that holds `count` batches of one record in each partition."""
    client = await node.connect()
    topic_id = await client.create(name, partitions)
    for index in range(partitions):
        for i in range(count):
            assert (await client.produce(name, batch(str(i)), partition=index)).error_code == 0
    return client, topic_id


def all_offsets(reply: FetchResponse) -> list[list[int]]:
    return [offsets(data) for topic in reply.responses for data in topic.partitions]


def waiting(node: Node) -> int:
    """Fetches parked on the first partition."""
    return len(node.broker.purgatory.watchers(node.broker.replicas.by_name["t"][0]).high_watermark)


def only(reply: FetchResponse) -> PartitionData:
    return reply.responses[0].partitions[0]


def test_every_version_reads_the_same() -> None:
    async def story(node: Node) -> None:
        client, topic_id = await filled(node)
        for version in range(4, 19):
            topic = topic_id if version >= 13 else "t"
            data = only(await client.ask(fetch_request([(topic, 0, 1)]), version))
            assert (data.error_code, data.high_watermark, offsets(data)) == (0, 3, [1, 2])
            assert data.last_stable_offset == 3
            assert data.log_start_offset == (0 if version >= 5 else -1)

    serve_and(story)


def test_bytes_are_counted_each_time_they_are_served_also_where_they_are_checked_before() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        partition = node.broker.replicas.by_name["t"][0]
        for times in range(1, 4):  # the second time they are checked
            data = await client.fetch("t")
            assert partition.bytes_out == times * len(content(data)) > 0

    serve_and(story)


def test_a_fetch_at_the_end_waits_until_something_is_produced() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        other = await node.connect()
        client.send(fetch_request([("t", 0, 3)], max_wait_ms=30_000), 12)
        await asyncio.sleep(2)
        began = now_s()
        await other.produce("t", batch("new"))
        assert offsets(only(await client.reply())) == [3]
        assert now_s() - began < 1

    serve_and(story)


def test_a_fetch_that_nothing_wakes_ends_when_its_time_is_up() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        began = now_s()
        data = await client.fetch("t", 3, max_wait_ms=2500)
        assert (data.error_code, content(data), data.high_watermark) == (0, b"", 3)
        assert 2.5 <= now_s() - began < 3
        began = now_s()
        for wait in (0, -1):
            assert not content(await client.fetch("t", 3, max_wait_ms=wait))
        assert not content(await client.fetch("t", 3, max_wait_ms=9000, min_bytes=0))
        assert now_s() - began < 1

    serve_and(story)


def test_the_bytes_of_all_partitions_together_end_the_waiting() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node, count=0, partitions=3)
        other = await node.connect()
        wanted = [("t", i, 0) for i in range(3)]
        client.send(fetch_request(wanted, max_wait_ms=60_000, min_bytes=2 * BATCH_SIZE + 1), 12)
        for index in range(3):
            await asyncio.sleep(1)
            assert waiting(node) == 1
            await other.produce("t", batch("x"), partition=index)
        reply = await asyncio.wait_for(client.reply(), 1)
        assert all_offsets(reply) == [[0], [0], [0]]

    serve_and(story)


def test_limits_leave_out_batches_but_never_the_first() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node, partitions=2)
        for limit in (-1, 0, 1, BATCH_SIZE):
            assert offsets(await client.fetch("t", partition_max_bytes=limit)) == [0]
        assert offsets(await client.fetch("t", partition_max_bytes=2 * BATCH_SIZE)) == [0, 1]
        for limit, expected in (
            (-1, [[0], []]),
            (0, [[0], []]),
            (3 * BATCH_SIZE, [[0, 1, 2], []]),
            (4 * BATCH_SIZE, [[0, 1, 2], [0]]),
        ):
            assert (
                all_offsets(await client.ask(fetch_request([("t", 0, 0), ("t", 1, 0)], max_bytes=limit), 12))
                == expected
            )
        reply = await client.ask(fetch_request([("t", 0, 3), ("t", 1, 0)], max_bytes=1), 12)
        assert all_offsets(reply) == [[], [0]], "the first that has data gives a batch"

    serve_and(story)


def failed(data: PartitionData) -> tuple[int, int, int, int, object, bytes]:
    return (
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        data.aborted_transactions,
        content(data),
    )


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_offsets_outside_the_log_are_out_of_range_at_once(isolation_level: int) -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
        await client.ask(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1000), 2
        )
        began = now_s()
        for offset in (-1, 0, 4, 1 << 62):
            data = await client.fetch("t", offset, max_wait_ms=60_000, isolation_level=isolation_level)
            assert failed(data) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1, None, b"")
        assert now_s() - began < 1
        assert offsets(await client.fetch("t", 1, isolation_level=isolation_level)) == [1, 2]

    serve_and(story)


def test_a_client_with_another_leader_epoch_is_told() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        node.broker.replicas.by_name["t"][0].become_leader(1, 4, (1,))
        for epoch, error in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            data = await client.fetch("t", current_leader_epoch=epoch)
            assert failed(data) == (error, -1, -1, -1, None, b"")
        for epoch in (4, -1, -2):
            assert (await client.fetch("t", current_leader_epoch=epoch)).error_code == 0

    serve_and(story)


def test_a_log_that_has_gone_another_way_is_told_where() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        node.broker.replicas.by_name["t"][0].become_leader(1, 2, (1,))
        await client.produce("t", batch("in epoch 2"))
        data = await client.fetch("t", 4, last_fetched_epoch=0, max_wait_ms=60_000)
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)
        data = await client.fetch("t", 4, last_fetched_epoch=1)
        assert data.diverging_epoch is not None and data.diverging_epoch.end_offset == 3
        data = await client.fetch("t", 3, last_fetched_epoch=2)
        assert data.diverging_epoch is None and offsets(data) == [3]
        assert (await client.fetch("t", 3, last_fetched_epoch=9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    serve_and(story)


def test_what_is_unknown_is_told_at_once_by_name_and_by_id() -> None:
    async def story(node: Node) -> None:
        client, topic_id = await filled(node)
        for topic, index, version, error in (
            ("nope", 0, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 1, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (b"\7" * 16, 0, 13, ErrorCode.UNKNOWN_TOPIC_ID),
            (bytes(16), 0, 13, ErrorCode.UNKNOWN_TOPIC_ID),
            (topic_id, -1, 13, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            data = only(await client.ask(fetch_request([(topic, index, 0)], max_wait_ms=60_000), version))
            assert (data.error_code, data.high_watermark) == (error, -1)

    serve_and(story)


@pytest.mark.parametrize("version", [4, 12, 17])
def test_who_says_to_be_a_replica_and_is_none_gets_nothing(version: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic = await client.create("t")
        await client.produce("t", batch("a"))
        request = fetch_request([("t" if version < 13 else topic, 0, 0)], max_wait_ms=60_000)
        request.replica_id = 5
        request.replica_state = ReplicaState(replica_id=5)
        reply = await client.ask(request, version)
        data = reply.responses[0].partitions[0]
        assert (data.error_code, data.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert not data.records

    serve_and(story)


def test_a_connection_through_which_a_follower_fetches_is_one_of_a_node() -> None:
    """It then waits for its turn as a node, whatever its listener is for."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        request = fetch_request([("t", 0, 0)])
        for replica_id in (-1, 5):
            request.replica_id = replica_id
            await client.ask(request, 12)
            connections = [each for listener in node.broker.listeners for each in listener.connections]
            assert any(each.is_of_follower for each in connections) is (replica_id == 5)

    serve_and(story)


@pytest.mark.parametrize("version", [4, 6, 7, 12])
def test_before_version_7_the_partitions_say_that_the_request_is_wrong(version: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        reply = await client.ask(fetch_request([("t", 0, 0)], isolation_level=7), version)
        assert reply.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if version >= 7 else 0)
        assert reply.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    serve_and(story)


def test_a_partition_named_twice_is_read_once() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        reply = await client.ask(fetch_request([("t", 0, 0), ("t", 0, 2)]), 12)
        assert all_offsets(reply) == [[2]]

    serve_and(story)


def test_a_session_tells_only_news() -> None:
    async def story(node: Node) -> None:
        client, topic_id = await filled(node, partitions=2)
        wanted = [(topic_id, 0, 3), (topic_id, 1, 3)]
        opened = await client.ask(fetch_request(wanted, session=(0, 0)), 17)
        assert opened.session_id > 0 and len(opened.responses) == 1
        session = opened.session_id
        assert (await client.ask(fetch_request([], session=(session, 1)), 17)).responses == []
        await client.produce("t", batch("x"), partition=1)
        reply = await client.ask(fetch_request([], session=(session, 2)), 17)
        assert [each.partition_index for each in reply.responses[0].partitions] == [1]
        forget = fetch_request([], session=(session, 3))
        forget.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[1])]
        assert (await client.ask(forget, 17)).responses == []
        reply = await client.ask(fetch_request([], session=(session, 9)), 17)
        assert reply.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        reply = await client.ask(fetch_request([], session=(session + 1, 1)), 17)
        assert reply.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        reply = await client.ask(fetch_request([], session=(session, 4)), 12)
        assert reply.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        await client.ask(fetch_request(wanted, session=(session, -1)), 17)
        assert len(node.broker.services.fetch_sessions) == 0

    serve_and(story)


def test_a_topic_that_is_deleted_ends_the_waiting() -> None:
    async def story(node: Node) -> None:
        client, topic_id = await filled(node)
        for topic, version, error in (
            ("t", 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (topic_id, 13, ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            reader = await node.connect()
            reader.send(fetch_request([(topic, 0, 3)], max_wait_ms=1_000_000), version)
            await asyncio.sleep(1)
            client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
            await client.reply()
            assert only(await asyncio.wait_for(reader.reply(), 1)).error_code == error
            topic_id = await client.create("t")
            await client.produce("t", batch("a", "b", "c"))

    serve_and(story)


def test_a_connection_that_goes_away_takes_its_parked_fetch_along() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        for _ in range(3):
            reader = await node.connect()
            reader.send(fetch_request([("t", 0, 3)], max_wait_ms=0x7FFFFFFF), 12)
            await asyncio.sleep(0.1)
            assert waiting(node) == 1
            reader.close()
            await asyncio.sleep(0.1)
            assert waiting(node) == 0
        await client.produce("t", batch("x"))

    serve_and(story)


def test_replies_behind_a_parked_fetch_wait_for_it() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        client.send(fetch_request([("t", 0, 3)], max_wait_ms=1000), 12)
        for _ in range(5):
            client.send(fetch_request([("t", 0, 0)]), 12)
        assert [offsets(only(await client.reply())) for _ in range(6)] == [[], *[[0, 1, 2]] * 5]

    serve_and(story)


def test_one_connection_may_read_what_it_wrote_while_it_waits() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        client.send(fetch_request([("t", 0, 3)], max_wait_ms=60_000), 12)
        client.send(produce_request("t", batch("x")), 9)
        assert offsets(only(await client.reply())) == [3]
        assert (await client.reply()).responses[0].partition_responses[0].base_offset == 3

    serve_and(story)


def test_what_the_page_cache_lacks_is_read_beside_the_loop() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node, partitions=3)
        node.host.disk.faults.cold_read = 0.5
        for _ in range(20):
            reply = await client.ask(fetch_request([("t", i, 0) for i in range(3)]), 12)
            assert all_offsets(reply) == [[0, 1, 2]] * 3

    serve_and(story)


READS_BEFORE_RECORDS = COLD_LOOKUPS_MAX + 2
"""With nothing in the page cache: lookups that began anew, then one for each partition that waits."""


@pytest.mark.parametrize(("cold_read", "reads_before"), [(0.0, 0), (1.0, 0), (1.0, 5), (1.0, READS_BEFORE_RECORDS)])
def test_a_disk_that_cannot_read_fails_what_is_on_it_and_nothing_else(cold_read: float, reads_before: int) -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node, partitions=2)
        disk = node.host.disk
        disk.faults.cold_read = cold_read
        disk.fail(Operation.READ, disk.counts[Operation.READ] + 1 + reads_before)
        reply = await client.ask(fetch_request([("t", 1, 0), ("t", 0, 0)]), 12)
        errors = [data.error_code for topic in reply.responses for data in topic.partitions]
        assert errors == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert offsets(await client.fetch("t")) == [0, 1, 2]
        assert (await client.fetch("t", partition=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    serve_and(story, log_dirs="/data,/data2")


def test_committed_readers_stop_at_the_last_stable_offset() -> None:
    async def story(node: Node) -> None:
        client, _ = await filled(node)
        data = await client.fetch("t", isolation_level=1)
        assert (data.last_stable_offset, data.aborted_transactions) == (3, [])
        assert (await client.fetch("t")).aborted_transactions is None

    serve_and(story)


def test_a_read_committed_fetch_names_the_aborted_transactions_that_it_may_meet() -> None:
    """No client of ours can write them yet, but a directory of Apache Kafka's brings them."""

    def transactional(producer_id: int, sequence: int) -> bytes:
        return build_batch(
            [Record(b"k", b"v", 1)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    def marker(producer_id: int, *, commits: bool) -> bytes:
        return end_transaction_marker(
            commits=commits, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        partition = node.broker.replicas.by_name["t"][0]
        for each in (
            transactional(7, 0),
            transactional(8, 0),
            transactional(9, 0),
            marker(8, commits=False),
            marker(7, commits=False),
            marker(9, commits=True),
            transactional(7, 1),
        ):
            assert partition.append_internal(each, 1).error == 0
        data = await client.fetch("t", isolation_level=1)
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []] == [(7, 0), (8, 1)]
        assert data.last_stable_offset == 6, "where the transaction that is still open began"
        assert offsets(data) == [0, 1, 2, 3, 4, 5]
        assert (await client.fetch("t", isolation_level=0)).aborted_transactions is None
        assert (await client.fetch("t", 5, isolation_level=1)).aborted_transactions == []

    serve_and(story)
