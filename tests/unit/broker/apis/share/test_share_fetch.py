"""Conversations of share consumers with one broker: sessions, acquired records, acknowledgements, locks, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from moldau.broker.apis.share import share_fetch as share_fetching
from moldau.broker.apis.share.share_fetch import PLANNED_MAX
from moldau.broker.share_partitions.runner import READ_SIZE_MIN, SharePartitionRunner
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages import share_fetch
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.replication.share.sessions import SESSION_PARTITIONS_MAX
from tests.support.coordinators import initialize_share_state
from tests.support.node import Client, Node, batch, serve_and
from tests.support.share_consumer import ACCEPT, FINAL, GROUP, NONE, RELEASE, RENEW, SETTINGS, Consumer, Taken
from tests.support.share_fetch_conversation import REQUESTS, converse


async def began(node: Node, start_offset: int = 0) -> tuple[Client, bytes]:
    """A topic with two partitions, whose share partitions begin at an offset."""
    client = await node.connect()
    update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
    assert (await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == NONE
    topic_id = await client.create("t", 2)
    await initialize_share_state(client.ask, GROUP, topic_id, range(2), start_offset)
    return client, topic_id


Story = Callable[[Node, Client, bytes], Awaitable[None]]


@pytest.fixture
def tell() -> Callable[[Story], None]:
    def tell_story(story: Story) -> None:

        async def run(node: Node) -> None:
            await story(node, *await began(node))

        serve_and(run, **SETTINGS)

    return tell_story


def test_records_are_acquired_acknowledged_and_never_seen_again(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a", "b"))
        await client.produce("t", batch("c"))
        consumer = Consumer(client, topic_id)
        assert await consumer.take(wait_ms=1_000) == [Taken(0, [b"a", b"b", b"c"], [(0, 2, 1)], 0)]
        assert await consumer.acknowledge(0, 2, ACCEPT, RELEASE, ACCEPT) == NONE
        assert await consumer.take() == [Taken(0, [b"a", b"b"], [(1, 1, 2)], 0)], "the batch with the released record"
        assert await consumer.take((1, 1, ACCEPT)) == [Taken(0, [], [], 0)]
        other = Consumer(client, topic_id, "n")
        assert await other.take() == [Taken(0, [], [], 0)]

    tell(story)


def test_a_fetch_waits_for_records_and_for_released_ones(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        first, second = Consumer(await node.connect(), topic_id), Consumer(await node.connect(), topic_id, "n")
        waiting = asyncio.ensure_future(first.take(wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await client.produce("t", batch("a"))
        assert await waiting == [Taken(0, [b"a"], [(0, 0, 1)], 0)]
        waiting = asyncio.ensure_future(second.take(wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert await first.acknowledge(0, 0, RELEASE) == NONE
        assert await waiting == [Taken(0, [b"a"], [(0, 0, 2)], 0)]
        waiting = asyncio.ensure_future(first.take(wait_ms=60_000))
        await asyncio.sleep(16)
        assert await waiting == [Taken(0, [b"a"], [(0, 0, 3)], 0)], "the second member's lock is over"

    tell(story)


Wake = Callable[[Node, Consumer], Awaitable[object]]


async def end_session(node: Node, holder: Consumer) -> object:
    return await holder.fetch(epoch=FINAL)


async def lose_connection(node: Node, holder: Consumer) -> object:
    """While no request of it waits, as that of a member that works on its records."""
    holder.client.close()
    return None


async def lose_connection_of_a_fetch(node: Node, holder: Consumer) -> object:
    waiting = asyncio.ensure_future(holder.take(wait_ms=60_000))
    await asyncio.sleep(1)
    waiting.cancel()
    holder.client.close()
    return None


async def acknowledge_all(node: Node, holder: Consumer) -> object:
    return await holder.acknowledge(0, LOCKS_MAX - 1, ACCEPT)


LOCKS_MAX = 100
"""The most records of a share partition in flight."""


@pytest.mark.parametrize(
    ("wake", "expected"),
    [
        (end_session, [(0, 0, LOCKS_MAX - 1, 2)]),
        (lose_connection, [(0, 0, LOCKS_MAX - 1, 2)]),
        (lose_connection_of_a_fetch, [(0, 0, LOCKS_MAX - 1, 2)]),
        (acknowledge_all, [(0, LOCKS_MAX, LOCKS_MAX, 1)]),
    ],
)
def test_a_fetch_waits_for_another_member(wake: Wake, expected: list[tuple[int, int, int, int]]) -> None:
    """As many records as may be in flight are held by a member; the next ones wait for room."""

    async def story(node: Node) -> None:
        client, topic_id = await began(node)
        await client.produce("t", batch(*map(str, range(LOCKS_MAX))))
        await client.produce("t", batch("next"))
        holder, other = Consumer(await node.connect(), topic_id), Consumer(await node.connect(), topic_id, "n")
        assert [each.acquired for each in await holder.take(records_max=1, wait_ms=1_000)] == [[(0, LOCKS_MAX - 1, 1)]]
        waiting = asyncio.ensure_future(other.take(records_max=1, wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await wake(node, holder)
        taken = await asyncio.wait_for(waiting, 1)
        assert [(each.error, *run) for each in taken for run in each.acquired] == expected

    serve_and(story, **SETTINGS | {"group_share_partition_max_record_locks": LOCKS_MAX})


def test_sessions_end_with_their_connections(tell: Callable[[Story], None]) -> None:
    """A broker has a limit of sessions. Members that were killed must not use it up."""

    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        sessions = node.broker.services.share_sessions
        for number in range(SETTINGS["group_share_max_share_sessions"] + 1):
            killed = Consumer(await node.connect(), topic_id, f"killed-{number}")
            assert [each.error for each in await killed.take()] == [NONE]
            killed.client.close()
            await asyncio.sleep(1)
            assert len(sessions) == 0

    tell(story)


def test_a_session_stays_with_the_connection_of_its_last_fetch(tell: Callable[[Story], None]) -> None:
    """A member has connected again, and the loss of its former connection is noticed late."""

    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        former = await node.connect()
        member = Consumer(former, topic_id)
        await member.take()
        member.client = client
        await member.take()
        former.close()
        await asyncio.sleep(1)
        assert [each.error for each in await member.take()] == []
        assert len(node.broker.services.share_sessions) == 1

    tell(story)


def test_a_fetch_that_waits_is_answered_when_its_broker_leads_no_more(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        consumer = Consumer(client, topic_id)
        waiting = asyncio.ensure_future(consumer.take(wait_ms=60_000))
        await asyncio.sleep(1)
        node.broker.services.share_partitions.on_group_left(GROUP)
        assert [each.error for each in await asyncio.wait_for(waiting, 1)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    tell(story)


def test_a_fetch_waits_while_another_one_reads_beside_the_loop(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        for value in "ab":
            await client.produce("t", batch(value))
        node.host.disk.faults.cold_read = 1.0
        members = [Consumer(await node.connect(), topic_id, name) for name in "mn"]
        waiting = [asyncio.ensure_future(each.take(records_max=1, wait_ms=60_000)) for each in members]
        taken = [await asyncio.wait_for(each, 5) for each in waiting]
        assert sorted(run for answers in taken for each in answers for run in each.acquired) == [(0, 0, 1), (1, 1, 1)]

    tell(story)


@pytest.mark.parametrize("cold_read", [0.0, 1.0])
def test_a_damaged_batch_takes_its_partition_offline_and_not_the_node(
    cold_read: float, tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: BytesLike) -> NoReturn:
        raise MalformedMessage("no batch begins at position 0")

    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a"))
        await client.produce("t", batch("b"), partition=1)
        node.host.disk.faults.cold_read = cold_read
        with monkeypatch.context() as patch:
            patch.setattr(share_fetching, "fetched_batches", refuse)
            taken = await Consumer(client, topic_id).take(wait_ms=1_000)
        assert {each.error for each in taken} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert (await client.produce("t", batch("c"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("t", batch("c"), partition=1)).error_code == ErrorCode.NONE

    tell(story)


def test_a_group_that_reads_what_is_committed_waits_for_the_last_stable_offset(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        committed = AlterableConfig(name="share.isolation.level", config_operation=0, value="read_committed")
        resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[committed])
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == NONE
        waiting = asyncio.ensure_future(Consumer(await node.connect(), topic_id).take(wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await client.produce("t", batch("a"))
        assert await asyncio.wait_for(waiting, 1) == [Taken(0, [b"a"], [(0, 0, 1)], 0)]

    tell(story)


def test_a_refusal_that_is_not_about_leaders_names_no_leader(tell: Callable[[Story], None]) -> None:
    """A client that takes the leader of any error for a hint would move to it."""

    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a"))
        consumer = Consumer(client, topic_id)
        await consumer.take(wait_ms=1_000)
        await asyncio.sleep(16)
        late = await client.ask(consumer.acknowledgement(0, 0, ACCEPT), 2)
        consumer.epoch += 1
        answers = [late, await consumer.fetch((0, 0, ACCEPT)), await consumer.fetch(partition=7)]
        partitions = [answer.responses[0].partitions[0] for answer in answers]
        assert partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE, "its lock is over"
        assert partitions[1].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
        assert partitions[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leaders = [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in partitions]
        assert leaders == [(-1, -1)] * 3

    tell(story)


def test_locks_are_renewed(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a"))
        consumer, other = Consumer(client, topic_id), Consumer(client, topic_id, "n")
        assert len((await consumer.take(wait_ms=1_000))[0].acquired) == 1
        await asyncio.sleep(10)
        assert await consumer.acknowledge(0, 0, RENEW) == ErrorCode.INVALID_REQUEST
        assert await consumer.acknowledge(0, 0, RENEW, is_renewal=True) == NONE
        await asyncio.sleep(10)
        assert await other.take() == [Taken(0, [], [], 0)]
        refused = await consumer.fetch((0, 0, RENEW), is_renew_ack=True)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message is None
        renewed = await consumer.take(
            (0, 0, RENEW), is_renew_ack=True, max_bytes=0, min_bytes=0, records_max=0, max_wait_ms=0
        )
        assert renewed == [Taken(0, [], [], 0)]

    tell(story)


def test_sessions(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        consumer = Consumer(client, topic_id)
        assert (await consumer.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await consumer.acknowledge(0, 0, ACCEPT, epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await consumer.acknowledge(0, 0, ACCEPT, epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (await consumer.fetch((0, 0, ACCEPT), epoch=0)).error_code == ErrorCode.INVALID_REQUEST
        await consumer.take()
        assert (await consumer.fetch(epoch=5)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await consumer.acknowledge(0, 0, ACCEPT, epoch=5) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        await client.produce("t", batch("a"))
        assert len(await consumer.take()) == 1
        assert await consumer.take() == [], "nothing new"
        second, third = Consumer(client, topic_id, "n"), Consumer(client, topic_id, "o")
        await second.take()
        assert (await third.fetch(wait_ms=100)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert (await consumer.fetch(epoch=FINAL)).error_code == NONE
        assert await third.take() == [Taken(0, [b"a"], [(0, 0, 2)], 0)], "a session that ends releases its records"
        assert (await consumer.fetch(epoch=FINAL)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

    tell(story)


def test_a_lost_connection_releases_the_records_of_its_member(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a"))
        lost = await node.connect()
        consumer, other = Consumer(lost, topic_id), Consumer(client, topic_id, "n")
        await consumer.take(wait_ms=1_000)
        waiting = asyncio.ensure_future(consumer.take(wait_ms=60_000))
        await asyncio.sleep(1)
        waiting.cancel()
        lost.close()
        assert await other.take(wait_ms=5_000) == [Taken(0, [b"a"], [(0, 0, 2)], 0)]

    tell(story)


def test_a_fetch_whose_session_has_ended_acquires_nothing(tell: Callable[[Story], None]) -> None:
    """Its member said goodbye on another connection, and did not wait for the fetch."""

    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        consumer, other = Consumer(await node.connect(), topic_id), Consumer(client, topic_id, "n")
        await other.take()
        waiting = asyncio.ensure_future(consumer.take(wait_ms=60_000))
        await asyncio.sleep(1)
        goodbye = Consumer(await node.connect(), topic_id)
        assert (await goodbye.fetch(epoch=FINAL)).error_code == NONE
        await client.produce("t", batch("a"))
        assert await other.take(wait_ms=5_000) == [Taken(0, [b"a"], [(0, 0, 1)], 0)]
        assert not any(each.acquired for each in await waiting)

    tell(story)


def test_a_connection_that_is_lost_late_leaves_the_new_session_of_its_member(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        lost = await node.connect()
        waiting = asyncio.ensure_future(Consumer(lost, topic_id).take(wait_ms=60_000))
        await asyncio.sleep(1)
        again = Consumer(client, topic_id)
        await again.take()
        waiting.cancel()
        lost.close()
        await client.produce("t", batch("a"))
        assert await again.take(wait_ms=5_000) == [Taken(0, [b"a"], [(0, 0, 1)], 0)]

    tell(story)


def test_a_strict_limit_cuts_a_batch(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a", "b", "c"))
        consumer, other = Consumer(client, topic_id), Consumer(client, topic_id, "n")
        assert [each.acquired for each in await consumer.take(records_max=2, mode=1, wait_ms=1_000)] == [[(0, 1, 1)]]
        assert [each.acquired for each in await other.take(records_max=2)] == [[(2, 2, 1)]]

    tell(story)


def test_no_more_is_read_than_the_wanted_records_take_and_a_larger_batch_is_read_next(
    tell: Callable[[Story], None],
) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        consumer = Consumer(client, topic_id)
        for partition in (0, 1):
            await client.produce("t", batch(*"abcd"), partition=partition)
            await consumer.take(partition=partition, wait_ms=1_000)
        shared = node.broker.services.share_partitions.get(ShareKey(GROUP, topic_id, 1))
        assert isinstance(shared, SharePartitionRunner)
        size = shared.read_size(500)
        assert size is not None and READ_SIZE_MIN < size < READ_SIZE_MIN + 500 * 100
        large = "x" * (READ_SIZE_MIN + 500 * 100)
        await client.produce("t", batch("small"), partition=0)
        await client.produce("t", batch(large), partition=1)
        found = [[each.values for each in await consumer.take() if each.values] for _ in range(2)]
        assert found == [[[b"small"]], [[large.encode()]]]

    tell(story)


def test_deleted_records_move_the_start(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        for value in "abc":
            await client.produce("t", batch(value))
        deleted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
        await client.ask(DeleteRecordsRequest(topics=[deleted], timeout_ms=1_000), 2)
        consumer = Consumer(client, topic_id)
        await consumer.take(wait_ms=1_000)
        assert [each.acquired for each in await consumer.take(wait_ms=1_000)] == [[(2, 2, 1)]]

    tell(story)


def test_what_is_stored_survives_another_load(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        await client.produce("t", batch("a", "b", "c"))
        consumer = Consumer(client, topic_id)
        await consumer.take(wait_ms=1_000)
        assert await consumer.acknowledge(0, 1, ACCEPT, RELEASE) == NONE
        node.broker.services.share_partitions.on_group_left(GROUP)
        again = Consumer(client, topic_id, "n")
        assert [each.acquired for each in await again.take(wait_ms=1_000)] == [[(1, 1, 2), (2, 2, 1)]]

    tell(story)


def partitions_of(topic_id: bytes, indexes: Iterable[int]) -> list[share_fetch.FetchTopic]:
    partitions = [share_fetch.FetchPartition(partition_index=index) for index in indexes]
    return [share_fetch.FetchTopic(topic_id=topic_id, partitions=partitions)]


def test_of_many_partitions_the_one_with_records_is_read(tell: Callable[[Story], None]) -> None:
    """More than are looked at, and than are read, at once."""
    count = 2 * PLANNED_MAX + 1

    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        wide_id = await client.create("wide", count)
        data = [initialize.PartitionData(partition=each, state_epoch=1, start_offset=0) for each in range(count)]
        topic = initialize.InitializeStateData(topic_id=wide_id, partitions=data)
        await client.ask(initialize.InitializeShareGroupStateRequest(group_id=GROUP, topics=[topic]), 0)
        consumer = Consumer(client, wide_id)
        waiting = asyncio.ensure_future(consumer.take(topics=partitions_of(wide_id, range(count)), wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await (await node.connect()).produce("wide", batch("a"), partition=count - 1)
        taken = await waiting
        assert len(taken) == count
        assert [each for each in taken if each != Taken(0, [], [], 0)] == [Taken(0, [b"a"], [(0, 0, 1)], 0)]

    tell(story)


def test_a_session_has_a_limited_number_of_partitions(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        consumer = Consumer(client, topic_id)
        most = partitions_of(topic_id, range(SESSION_PARTITIONS_MAX))
        assert (await consumer.fetch(topics=most)).error_code == NONE
        assert (await consumer.fetch(topics=partitions_of(topic_id, [0]))).error_code == NONE
        more = partitions_of(topic_id, [0, SESSION_PARTITIONS_MAX])
        assert (await consumer.fetch(topics=more)).error_code == ErrorCode.INVALID_REQUEST

    tell(story)


def test_refusals(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        nameless = Consumer(client, topic_id, "")
        assert (await nameless.fetch()).error_code == ErrorCode.INVALID_REQUEST
        unknown = Consumer(client, b"?" * 16)
        assert [each.error for each in await unknown.take()] == [ErrorCode.UNKNOWN_TOPIC_ID]
        consumer = Consumer(client, topic_id)
        beyond = await consumer.take(partition=7)
        assert [each.error for each in beyond] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for first, last, kinds in ((1, 0, [1]), (0, 0, []), (0, 3, [1, 1]), (0, 0, [5]), (0, 0, [-1])):
            assert await consumer.acknowledge(first, last, *kinds) == ErrorCode.INVALID_REQUEST
        other_group = Consumer(client, topic_id, group_id="other")
        answer = await other_group.take(wait_ms=1_000)
        assert [each.error for each in answer] == [ErrorCode.UNKNOWN_SERVER_ERROR], "its state is not initialized"

    tell(story)


def test_the_feature_is_off() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        assert (await client.ask(UpdateFeaturesRequest(feature_updates=[off]), 1)).error_code == NONE
        consumer = Consumer(client, b"t" * 16)
        assert (await consumer.fetch()).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert await consumer.acknowledge(0, 0, ACCEPT) == ErrorCode.UNSUPPORTED_VERSION

    serve_and(story)


def test_a_conversation_of_200_requests_is_answered_as_apache_kafka_answers_it() -> None:
    expected = Path(__file__).with_name("kafka_4_3_1_share_fetch.txt").read_text().splitlines()
    lines: list[str] = []

    async def story(node: Node) -> None:
        client = await node.connect()
        update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
        await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        lines.extend(await converse(client, "t"))

    serve_and(story, **SETTINGS | {"group_share_record_lock_duration_ms": 30_000, "group_share_max_share_sessions": 10})
    assert len(expected) == REQUESTS
    assert lines == expected


def test_a_member_above_the_byte_rate_of_its_client_acquires_nothing(tell: Callable[[Story], None]) -> None:
    async def story(node: Node, client: Client, topic_id: bytes) -> None:
        for value in "xyz":
            await client.produce("t", batch(value * 4_000))
        other = await node.connect(client_id="other")
        await other.set_quota("consumer_byte_rate", 1_000, client_id="test")
        consumer = Consumer(client, topic_id)
        first = await consumer.fetch(wait_ms=1_000, records_max=1)
        assert first.throttle_time_ms == 0 and first.responses[0].partitions[0].acquired_records
        exceeding = await consumer.fetch((0, 0, ACCEPT), records_max=1)
        assert exceeding.throttle_time_ms > 0
        (partition,) = exceeding.responses[0].partitions
        assert partition.records and partition.acknowledge_error_code == NONE, "acquired records are given"
        second = await node.connect()
        refused = await Consumer(second, topic_id, "n").fetch(records_max=1, wait_ms=1_000)
        assert refused.throttle_time_ms > 0 and not refused.responses
        third = Consumer(other, topic_id, "n")
        assert [each.acquired for each in await third.take(records_max=1, wait_ms=1_000)] == [[(2, 2, 1)]]

    tell(story)
