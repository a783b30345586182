"""What is said of groups of aiokafka, in simulated time: the real client provokes what takes an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.structs import TopicPartition  # type: ignore[import-untyped]

from moldau.broker.cli.daily.client import LATEST
from moldau.broker.reasons.explain import explain_group
from moldau.broker.reasons.facts import GROUP_HISTORY_SETTING, GroupFacts, History, MemberFacts, PartitionFacts
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.testing import Simulation, simulate
from tests.support.node import Client

GROUP_RESOURCE: Final = 32
RECORDS: Final = 10
MINUTE_S: Final = 60
FAST: Final = {"max_poll_interval_ms": 30_000, "session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000}
Application = Callable[[Simulation], Coroutine[Any, Any, None]]


def consumer(kafka: Simulation, **settings: Any) -> AIOKafkaConsumer:
    common = {"group_id": "g", "client_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    return AIOKafkaConsumer("orders", bootstrap_servers=kafka.bootstrap_servers, **{**common, **settings})


def worker(*, polls: int, **settings: Any) -> Application:
    """An application that reads `polls` records, commits each and then stands still."""

    async def run(kafka: Simulation) -> None:
        opened = consumer(kafka, **settings)
        await opened.start()
        for _ in range(polls):
            record = await opened.getone()
            await opened.commit({TopicPartition("orders", 0): record.offset + 1})
        await asyncio.sleep(1_000_000)

    return run


def symptoms(story: Callable[[Simulation], Awaitable[None]], **settings: object) -> dict[str, str]:
    """What is said of the group after a story, which begins with ten records."""

    async def main(kafka: Simulation) -> GroupFacts:
        await kafka.create_topic("orders")
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
        await producer.start()
        for number in range(RECORDS):
            await producer.send_and_wait("orders", b"%d" % number)
        await producer.stop()
        await story(kafka)
        return await facts_of(kafka)

    sentences = explain_group(simulate(main, nodes=1, settings=settings, limit_s=30 * 24 * 3600).value)
    assert len({each.symptom for each in sentences}) == len(sentences)
    return {each.symptom: each.text for each in sentences}


async def facts_of(kafka: Simulation) -> GroupFacts:
    """What the broker tells of the group now."""
    host, _, port = kafka.bootstrap_servers.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = Client(reader, writer, "asks")
    (group,) = (await client.ask(DescribeGroupsRequest(groups=["g"]), 5)).groups
    resource = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name="g", configuration_keys=[GROUP_HISTORY_SETTING]
    )
    (told,) = (await client.ask(DescribeConfigsRequest(resources=[resource]), 4)).results
    history = History.from_json(told.configs[0].value)
    wanted = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    )
    (fetched,) = (await client.ask(OffsetFetchRequest(groups=[wanted]), 8)).groups
    committed = fetched.topics[0].partitions[0].committed_offset
    at_end = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    end = (await client.ask(ListOffsetsRequest(replica_id=-1, topics=[at_end]), 7)).topics[0].partitions[0].offset
    client.close()
    members = [MemberFacts(each.member_id, each.client_id, each.client_host) for each in group.members]
    partition = PartitionFacts(
        "orders",
        0,
        committed if committed >= 0 else None,
        0,
        end,
        end,
        committed_at_ms=(history.commits_ms or {}).get(("orders", 0)),
        member_id=members[0].member_id if members else None,
    )
    return GroupFacts("g", "classic", group.group_state, members, [partition], history)


def test_a_consumer_that_stands_still_and_sends_heartbeats() -> None:
    async def story(kafka: Simulation) -> None:
        kafka.start(worker(polls=4, max_poll_interval_ms=3_600_000), "worker")
        await asyncio.sleep(20 * MINUTE_S)

    found = symptoms(story)
    assert found.keys() == {"stands-still"}
    assert "orders-0 lags by 6 records: member billing at " in found["stands-still"]
    assert " committed last 19 min " in found["stands-still"] or " committed last 20 min " in found["stands-still"]
    assert "it is busy with the records that it has, stands still, or does not commit" in found["stands-still"]


def test_a_consumer_that_does_not_poll_in_time() -> None:
    async def story(kafka: Simulation) -> None:
        kafka.start(worker(polls=4, **FAST), "worker")
        await asyncio.sleep(10 * MINUTE_S)

    found = symptoms(story)
    assert found.keys() == {"no-members"}
    assert found["no-members"].startswith("the group has no members: member billing at ")
    assert "left: it was closed, or did not poll within max.poll.interval.ms" in found["no-members"]


def test_a_process_that_is_killed() -> None:
    async def story(kafka: Simulation) -> None:
        process = kafka.start(worker(polls=4, **FAST), "worker")
        await asyncio.sleep(20)
        process.kill()
        await asyncio.sleep(MINUTE_S)

    found = symptoms(story)
    assert found.keys() == {"no-members"}
    assert (
        "was not heard of for its session of 10 s: its process ended, stood still, or could not" in found["no-members"]
    )


def test_an_offset_that_expired_without_members() -> None:
    async def story(kafka: Simulation) -> None:
        process = kafka.start(worker(polls=4, **FAST), "worker")
        await asyncio.sleep(20)
        process.kill()
        await asyncio.sleep(70 * MINUTE_S)
        kafka.start(worker(polls=0), "worker-2")
        await asyncio.sleep(20)

    found = symptoms(story, **{"offsets.retention.minutes": 20, "offsets.retention.check.interval.ms": 60_000})
    assert found.keys() == {"offsets-expired", "not-committed"}
    assert found["offsets-expired"].startswith("1 offset of the group expired ")


def test_a_process_that_restarts_again_and_again() -> None:
    async def story(kafka: Simulation) -> None:
        for number in range(4):
            process = kafka.start(worker(polls=1, **FAST), f"worker-{number}")
            await asyncio.sleep(20)
            process.kill()
            await asyncio.sleep(20)

    found = symptoms(story)
    assert found.keys() == {"no-members", "rebalances"}
