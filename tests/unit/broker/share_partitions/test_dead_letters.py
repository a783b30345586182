"""Dead letters over a broker: which topics become queues, what the queues hold, and what waits for them.

The same stories were told to Apache Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import incremental_alter_configs as altering
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from tests.support.coordinators import initialize_share_state
from tests.support.node import Client, Node, batch, serve_and
from tests.support.share_consumer import ACCEPT, FINAL, GROUP, NONE, RELEASE, SETTINGS, Consumer
from tests.unit.broker.metrics.test_service import LISTENER, scrape

BROKER_KIND, TOPIC_KIND, GROUP_KIND = 4, 2, 32
REJECT = 3
QUEUE = "dlq.q"
METRIC = "kafka_server_sharegroupmetrics_deadletterqueue"
COUNTED = ("recordcount", "totalproducerequests_total", "failedproducerequests_total")
REJECTED, USED_UP = b"Offset rejected by client.", b"Offset delivery count exceeded the threshold."


async def alter(client: Client, kind: int, name: str, **configs: str) -> tuple[int, str | None]:
    values = [
        altering.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in configs.items()
    ]
    resource = altering.AlterConfigsResource(resource_type=kind, resource_name=name, configs=values)
    answer = await client.ask(altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    (response,) = answer.responses
    return response.error_code, response.error_message


async def finalize(client: Client, feature: str, level: int, upgrade_type: int = 1) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    assert (await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == NONE


async def began(node: Node, *, share_version: int = 2, **configs: str) -> tuple[Client, Consumer]:
    """A group with a dead-letter queue, about to consume a topic."""
    client = await node.connect()
    await finalize(client, "metadata.version", 33)
    await finalize(client, "share.version", share_version)
    topic_id = await client.create("t", 2)
    group = {"errors_deadletterqueue_topic_name": QUEUE, "share_delivery_count_limit": "2"} | configs
    assert await alter(client, GROUP_KIND, GROUP, **group) == (NONE, None)
    await initialize_share_state(client.ask, GROUP, topic_id, range(2))
    return client, Consumer(client, topic_id)


async def consume_one_of_each_kind(client: Client, consumer: Consumer) -> None:
    """Of five records 0 is accepted, 1 and 2 are rejected, 3 and 4 are delivered twice in vain."""
    await client.produce("t", batch("a", "b"))
    await client.produce("t", batch("c", "d", "e"))
    for _ in range(50):
        if (await consumer.take(wait_ms=1_000))[0].acquired:
            break
    assert await consumer.acknowledge(0, 4, ACCEPT, REJECT, REJECT, RELEASE, RELEASE) == NONE
    (again,) = await consumer.take(wait_ms=1_000)
    assert {offset for first, last, _ in again.acquired for offset in range(first, last + 1)} <= {3, 4}
    for first, last, _ in again.acquired:
        assert await consumer.acknowledge(first, last, RELEASE) == NONE
    if again.acquired[-1][1] < 4:  # The last delivery is of few records.
        (rest,) = await consumer.take(wait_ms=1_000)
        for first, last, _ in rest.acquired:
            assert await consumer.acknowledge(first, last, RELEASE) == NONE


async def letters(client: Client, count: int) -> list[Record]:
    """The records of the queue, once there are so many."""
    found: list[Record] = []
    for _ in range(200):
        fetched = await client.fetch(QUEUE)
        if fetched.error_code == NONE:
            assert fetched.records is None or isinstance(fetched.records, bytes | bytearray | memoryview)
            raw = bytes(fetched.records or b"")
            found = [each for place, header in iterate_batches(raw) for each in records_of(raw, place, header)]
            if len(found) >= count:
                break
        await asyncio.sleep(0.1)
    return found


def told(record: Record) -> tuple[bytes | None, bytes | None, bytes | None]:
    headers = dict(record.headers)
    assert headers["__dlq.errors.topic"] == b"t" and headers["__dlq.errors.group"] == GROUP.encode()
    assert headers["__dlq.errors.partition"] == b"0"
    return (*(headers[f"__dlq.errors.{name}"] for name in ("offset", "delivery.count", "message")),)  # type: ignore[return-value]


ALL_TOLD = {(b"1", b"1", REJECTED), (b"2", b"1", REJECTED), (b"3", b"2", USED_UP), (b"4", b"2", USED_UP)}


async def is_finished(node: Node, consumer: Consumer) -> bool:
    """Whether the share partition gets past all records."""
    for _ in range(200):
        shared = node.broker.services.share_partitions.find(ShareKey(GROUP, consumer.topic_id, 0))
        if shared is not None and shared.machine.start_offset == 5:
            return True
        await asyncio.sleep(0.1)
    return False


async def counted() -> dict[str, float]:
    """The metrics of dead letters of the group, by the end of their names; 0 if there is no sample."""
    samples = await scrape()
    return {name: samples.get(f'{METRIC}{name}{{group="{GROUP}"}}', 0) for name in COUNTED}


def tell(story: Callable[[Node], Awaitable[None]]) -> None:
    serve_and(story, moldau_http_listener=LISTENER, **SETTINGS)


@pytest.mark.parametrize("copies", ["true", "false"])
def test_a_queue_has_what_was_rejected_and_what_used_up_its_deliveries(copies: str) -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node, errors_deadletterqueue_copy_record_enable=copies)
        await client.create(QUEUE, errors_deadletterqueue_group_enable="true")
        await consume_one_of_each_kind(client, consumer)
        found = await letters(client, 4)
        assert {told(each) for each in found} == ALL_TOLD and len(found) == 4
        values = {dict(each.headers)["__dlq.errors.offset"]: (each.key, each.value) for each in found}
        originals = {b"1": b"b", b"2": b"c", b"3": b"d", b"4": b"e"}
        is_copied = copies == "true"
        assert values == {at: (value, value) if is_copied else (None, None) for at, value in originals.items()}
        assert await is_finished(node, consumer)
        assert await counted() == {"recordcount": 4, "totalproducerequests_total": 2, "failedproducerequests_total": 0}

    tell(story)


def test_a_request_with_dead_letters_that_is_refused_is_counted() -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node)
        await client.create(QUEUE, errors_deadletterqueue_group_enable="true", max_message_bytes="10")
        await consume_one_of_each_kind(client, consumer)
        assert await is_finished(node, consumer)
        assert await counted() == {"recordcount": 0, "totalproducerequests_total": 2, "failedproducerequests_total": 2}
        assert await letters(client, 1) == []

    tell(story)


def test_a_queue_is_created_where_the_broker_may() -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node)
        assert await alter(client, BROKER_KIND, "", errors_deadletterqueue_auto_create_topics_enable="true") == (
            0,
            None,
        )
        await consume_one_of_each_kind(client, consumer)
        assert {told(each) for each in await letters(client, 4)} == ALL_TOLD
        overrides = node.broker.image.configs.settings_of(ResourceType.TOPIC, QUEUE)
        assert overrides == {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}

    tell(story)


async def reject_and_leave(client: Client, consumer: Consumer) -> None:
    """The only member rejects records 0 and 1, and its session ends with the acknowledgement."""
    await client.produce("t", batch("a", "b"))
    while not (await consumer.take(wait_ms=1_000))[0].acquired:
        pass
    assert await consumer.acknowledge(0, 1, REJECT, epoch=FINAL) == NONE
    consumer.epoch = 0


def test_the_last_member_may_leave_before_its_dead_letters_are_written() -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node)
        await reject_and_leave(client, consumer)
        assert node.broker.services.share_partitions.find(ShareKey(GROUP, consumer.topic_id, 0)) is None
        found = {told(each) for each in await letters(client, 2)}
        assert found == {(b"0", b"1", REJECTED), (b"1", b"1", REJECTED)}

    serve_and(story, errors_deadletterqueue_auto_create_topics_enable="true", **SETTINGS)


def test_a_member_that_comes_meanwhile_is_served_and_its_partition_writes_the_dead_letters() -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node)
        await reject_and_leave(client, consumer)
        await client.produce("t", batch("c"))
        while not (taken := (await consumer.take(wait_ms=1_000))[0].acquired):
            pass
        assert taken == [(2, 2, 1)]
        await client.create(QUEUE, errors_deadletterqueue_group_enable="true")
        await asyncio.sleep(60)
        assert len(await letters(client, 2)) == 2

    settings = SETTINGS | {
        "errors_deadletterqueue_auto_create_topics_enable": "true",
        "default_replication_factor": "3",
    }
    serve_and(story, **settings)


@pytest.mark.parametrize("queue", ["missing", "not enabled", "another prefix"])
def test_without_a_topic_that_may_be_the_queue_records_are_archived_all_the_same(queue: str) -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node)
        if queue == "not enabled":
            await client.create(QUEUE)
        elif queue == "another prefix":
            await client.create(QUEUE, errors_deadletterqueue_group_enable="true")
            assert await alter(client, BROKER_KIND, "", errors_deadletterqueue_topic_name_prefix="dead.") == (0, None)
        await consume_one_of_each_kind(client, consumer)
        assert await is_finished(node, consumer)
        assert (node.broker.image.topics.by_name(QUEUE) is None) == (queue == "missing")
        assert await letters(client, 1) == []

    tell(story)


def test_dead_letters_wait_for_a_queue_that_cannot_be_created_now() -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node)
        await consume_one_of_each_kind(client, consumer)
        await asyncio.sleep(60)
        assert node.broker.image.topics.by_name(QUEUE) is None and not await is_finished(node, consumer)
        await client.create(QUEUE, errors_deadletterqueue_group_enable="true")
        await asyncio.sleep(60)
        assert {told(each) for each in await letters(client, 4)} == ALL_TOLD
        assert await is_finished(node, consumer)

    settings = SETTINGS | {
        "errors_deadletterqueue_auto_create_topics_enable": "true",
        "default_replication_factor": "3",
    }
    serve_and(story, **settings)


def test_a_cluster_at_share_version_1_has_no_dead_letters() -> None:
    async def story(node: Node) -> None:
        client, consumer = await began(node, share_version=1)
        await client.create(QUEUE, errors_deadletterqueue_group_enable="true")
        await consume_one_of_each_kind(client, consumer)
        assert await is_finished(node, consumer)
        assert await letters(client, 1) == []

    tell(story)


def test_the_name_of_a_queue_is_not_that_of_an_internal_topic() -> None:
    async def story(node: Node) -> None:
        client, _ = await began(node)
        message = "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"
        refused = await alter(client, GROUP_KIND, GROUP, errors_deadletterqueue_topic_name="__q")
        assert refused == (ErrorCode.INVALID_CONFIG, message)
        assert (await client.ask(MetadataRequest(topics=[]), 9)).topics == []

    tell(story)
