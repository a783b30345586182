"""Client quotas on a node: what clients are told, and for how long they are muted."""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.compiler import encode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.security.quotas.sampled_rate import THROTTLE_MS_MAX
from tests.support.node import Client, Closed, Node, batch, fetch_request, produce_request, serve_and

FETCH_VERSION = 12
PRODUCE_VERSION = 9
PRODUCE = 0
LARGE = "x" * 2500
"""A batch of this has 5,000 bytes and a little: the value is its key too."""


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def answered_after_s(client: Client) -> float:
    """How long the connection is muted."""
    began_s = now_s()
    await client.ask(ListGroupsRequest(states_filter=[]), 4)
    return now_s() - began_s


def frame_size(request: object, version: int, client_id: str = "test") -> int:
    return 10 + len(client_id) + 1 + len(encode(request, version))


def test_a_producer_above_its_byte_rate_is_told_and_muted_for_that_time() -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        await client.create("t")
        await admin.set_quota("producer_byte_rate", 1000, client_id="test")
        request = produce_request("t", batch(LARGE))
        size = frame_size(request, PRODUCE_VERSION)
        assert (await client.ask(request, PRODUCE_VERSION)).throttle_time_ms == 0, "below 1000 x 10 s"
        assert await answered_after_s(client) < 0.1
        reply = await client.ask(request, PRODUCE_VERSION)
        expected_ms = (2 * size - 10_000) / 1000 * 1000
        assert reply.throttle_time_ms == pytest.approx(expected_ms, abs=30)
        assert await answered_after_s(client) == pytest.approx(reply.throttle_time_ms / 1000, abs=0.02)
        assert await answered_after_s(admin) < 0.1, "another client is not muted"

    serve_and(story)


def test_a_producer_far_above_its_byte_rate_gets_its_acknowledgement() -> None:
    """Administrators stop a client by a quota of 1, because 0 is refused. Records that are stored must be
    acknowledged, or the client sends them again."""

    async def story(node: Node) -> None:
        admin = await node.connect(client_id="admin")
        await admin.create("t")
        await admin.set_quota("producer_byte_rate", 1, client_id="test")
        request = produce_request("t", batch("x" * 500_000))
        replies = [await (await node.connect()).ask(request, PRODUCE_VERSION) for _ in range(4)]
        assert [each.responses[0].partition_responses[0].base_offset for each in replies] == [0, 1, 2, 3]
        times_ms = [each.throttle_time_ms for each in replies]
        assert times_ms == sorted(times_ms) and times_ms[-1] == THROTTLE_MS_MAX

    serve_and(story)


def test_records_without_acknowledgement_count_and_mute() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.set_quota("producer_byte_rate", 100, client_id=None)
        client.send(produce_request("t", batch(LARGE), acks=0), PRODUCE_VERSION, is_answered=False)
        assert await answered_after_s(client) > 30

    serve_and(story)


def test_a_repeated_produce_is_counted_like_any_other() -> None:
    """Frames that a hook answers without decoding them would pass by the quota."""

    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        await client.create("t")
        request = produce_request("t", batch("x" * 180))
        for _ in range(3):
            await client.ask(request, PRODUCE_VERSION)
        route = node.broker.listeners[0].routes[PRODUCE]
        assert not route.is_governed
        await admin.set_quota("producer_byte_rate", 100, user=None)
        replies = [await client.ask(request, PRODUCE_VERSION) for _ in range(4)]
        assert [each.throttle_time_ms > 0 for each in replies] == [False, False, True, True]
        await admin.set_quota("producer_byte_rate", None, user=None)
        assert (await client.ask(request, PRODUCE_VERSION)).throttle_time_ms == 0
        assert not route.is_governed

    serve_and(story)


def test_a_consumer_above_its_byte_rate_gets_no_records_until_it_may() -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        await client.create("t")
        for _ in range(3):
            await client.produce("t", batch(LARGE))
        await admin.set_quota("consumer_byte_rate", 1000, user="ANONYMOUS", client_id="test")
        request = fetch_request([("t", 0, 0)], partition_max_bytes=5200)
        first: FetchResponse = await client.ask(request, FETCH_VERSION)
        assert first.throttle_time_ms == 0 and first.responses[0].partitions[0].records
        second: FetchResponse = await client.ask(request, FETCH_VERSION)
        assert second.throttle_time_ms > 0 and not second.responses
        assert await answered_after_s(client) == pytest.approx(second.throttle_time_ms / 1000, abs=0.02)
        third: FetchResponse = await client.ask(request, FETCH_VERSION)
        assert third.throttle_time_ms == 0, "a throttled response does not count"
        assert third.responses[0].partitions[0].records

    serve_and(story)


def test_a_throttled_fetch_gives_up_the_session_that_it_opened_and_keeps_an_older_one() -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        await client.create("t")
        await client.produce("t", batch(2 * LARGE + LARGE[:200]))
        opened = await client.ask(fetch_request([("t", 0, 0)], session=(0, 0)), FETCH_VERSION)
        await admin.set_quota("consumer_byte_rate", 1000, client_id="test")
        again = await client.ask(fetch_request([("t", 0, 0)], session=(opened.session_id, 1)), FETCH_VERSION)
        assert again.throttle_time_ms > 0 and again.session_id == opened.session_id
        sessions = len(node.broker.services.fetch_sessions)
        other = await node.connect()
        new = await other.ask(fetch_request([("t", 0, 0)], session=(0, 0)), FETCH_VERSION)
        assert new.throttle_time_ms > 0 and new.session_id == 0
        assert len(node.broker.services.fetch_sessions) == sessions
        await admin.set_quota("consumer_byte_rate", None, client_id="test")
        more = await client.ask(fetch_request([("t", 0, 0)], session=(opened.session_id, 2)), FETCH_VERSION)
        assert more.error_code == 0 and more.responses[0].partitions[0].records

    serve_and(story)


def test_the_time_of_requests_is_throttled_for_one_window_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        spent_ns = iter(range(0, 10**15, 500_000_000))
        monkeypatch.setattr(
            node.broker.quotas._governors[node.broker.listeners[0].role], "_clock_ns", lambda: next(spent_ns)
        )
        await admin.set_quota("request_percentage", 1, client_id="test")
        client.send(ListGroupsRequest(states_filter=[]), 4)
        assert (await client.reply()).throttle_time_ms == 1000, "half a second of a thread in 10 s is 5 percent"
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        began_s = now_s()
        assert (await client.ask(heartbeat, 4)).throttle_time_ms == 1000
        assert now_s() - began_s == pytest.approx(1, abs=0.02)

    serve_and(story)


def test_what_a_muted_client_sent_waits_and_its_timer_ends_with_the_connection() -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        await client.create("t")
        await admin.set_quota("producer_byte_rate", 1, client_id="test")
        for _ in range(3):
            client.send(produce_request("t", batch("a")), PRODUCE_VERSION)
        assert (await client.reply()).throttle_time_ms > 0
        assert node.broker.replicas.by_name["t"][0].log.end_offset == 1, "the second waits until the first is paid for"
        connection = next(each for each in node.broker.listeners[0].connections if each._flow._throttle is not None)
        timer = connection._flow._throttle
        connection.close("the test is over")
        assert timer is not None and timer.cancelled()

    serve_and(story)


def test_connections_above_the_rate_of_their_address_are_not_answered_and_closed() -> None:
    async def story(node: Node) -> None:
        admin = await node.connect(client_id="admin")
        await admin.set_quota("connection_creation_rate", 1, ip=None)
        clients = [await node.connect() for _ in range(14)]
        listener = node.broker.listeners[0]
        assert len(listener.connections) == 11 and listener.throttled_count == 4
        with pytest.raises(Closed):
            await clients[-1].ask(ListGroupsRequest(states_filter=[]), 4)
        await admin.set_quota("connection_creation_rate", None, ip=None)
        assert await answered_after_s(await node.connect()) < 0.1

    serve_and(story)


def test_changes_of_topics_are_throttled_by_the_controller_and_the_broker_mutes() -> None:
    async def story(node: Node) -> None:
        admin, client = await node.connect(client_id="admin"), await node.connect()
        await admin.set_quota("controller_mutation_rate", 1, client_id="test")
        await client.create("a", 12)
        topic = CreatableTopic(name="b", num_partitions=1, replication_factor=1)
        refused = await client.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert refused.topics[0].error_code == 89 and 900 < refused.throttle_time_ms <= 1000
        assert await answered_after_s(client) == pytest.approx(refused.throttle_time_ms / 1000, abs=0.02)
        await client.create("b")
        await admin.create("c", 30)
        assert await answered_after_s(admin) < 0.1
        old = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="d", num_partitions=3, replication_factor=1)]), 5
        )
        assert old.topics[0].error_code == 0 and old.throttle_time_ms > 1900

    serve_and(story)
