"""A share group: the rate at which its consumers get and acknowledge records, and the latency of an acknowledgement.

The consumers are raw requests of this module, the same for both brokers. Each acknowledges the records that it has
acquired in its next ShareFetch, as the consumers of Apache Kafka do, or in requests of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Final, NamedTuple

from bench.async_client import COORDINATOR_STARTING_ERRORS, Connection, open_connection
from bench.client import Client
from bench.contenders import Contender, run_in_turns
from bench.figures import Figure
from bench.frames import batch_of, produce_frame
from bench.groups import RunForm
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as Acknowledged,
)
from moldau.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from moldau.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

CONSUMERS: Final = 4
VALUE_SIZE: Final = 1024
BATCH_RECORDS: Final = 50
RECORDS: Final = 400_000
RECORDS_QUICK: Final = 50_000
RECORDS_AT_ONCE: Final = 500
"""The most records of a fetch: the default of `max.poll.records`."""
ACKNOWLEDGED_AT_ONCE: Final = 10
ACKNOWLEDGEMENTS: Final = 4_000
ACKNOWLEDGEMENTS_QUICK: Final = 500
PATIENCE_S: Final = 120.0
VERSION: Final = 1
GROUP_RESOURCE: Final = 32
"""The resource type of groups in requests about settings."""
ACCEPT: Final = 1
RATE: Final = f"share group, {CONSUMERS} consumers of one partition, 1 KiB"
LATENCY: Final = f"share group, acknowledgements of {ACKNOWLEDGED_AT_ONCE} records, one in flight"


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    with ExitStack() as stack:
        contenders = []
        for name in bench.names:
            server = bench.new_server(name)
            server.format()
            stack.callback(remove_server, server)
            contender = Contender(stack.enter_context(RunningBroker(server)))
            contender.warm_up(form.warm_up_s / 2)
            contenders.append(contender)
        _warm_groups(contenders)
        return [*_rates(contenders, form), *_latencies(contenders, form)]


def _warm_groups(contenders: Sequence[Contender]) -> None:
    """Create the topic of the share coordinator, and let a JVM compile the code of share groups."""
    for contender in contenders:
        _consumed(contender, RECORDS_QUICK)
        _acknowledged(contender, ACKNOWLEDGEMENTS_QUICK)


def _rates(contenders: Sequence[Contender], form: RunForm) -> list[Figure]:
    records = RECORDS_QUICK if form.is_quick else RECORDS
    runs = run_in_turns(
        contenders,
        form.rounds,
        lambda each: _consumed(each, records),
        lambda run: f"{run.rate:,.0f} records/s, {run.cpu_us:.1f} us of CPU a record, client {run.client:.0%}",
    )
    client = max(run.client for mine in runs.values() for run in mine)
    return [
        Figure(
            f"{RATE}: rate",
            "records/s",
            {name: [run.rate for run in mine] for name, mine in runs.items()},
            less_is_better=False,
            generator=client,
        ),
        Figure(
            f"{RATE}: user + system CPU",
            "us",
            {name: [run.cpu_us for run in mine] for name, mine in runs.items()},
            generator=client,
        ),
    ]


def _latencies(contenders: Sequence[Contender], form: RunForm) -> list[Figure]:
    count = ACKNOWLEDGEMENTS_QUICK if form.is_quick else ACKNOWLEDGEMENTS
    runs = run_in_turns(
        contenders,
        form.rounds,
        lambda each: _acknowledged(each, count),
        lambda times: f"{median(times):.3f} ms, p99 {quantiles(times, n=100)[98]:.3f} ms",
    )
    return [
        Figure(f"{LATENCY}: median", "ms", {name: [median(times) for times in mine] for name, mine in runs.items()}),
        Figure(
            f"{LATENCY}: p99",
            "ms",
            {name: [quantiles(times, n=100)[98] for times in mine] for name, mine in runs.items()},
        ),
    ]


class ConsumptionRun(NamedTuple):
    """The result of one run of a group's consumers."""

    rate: float
    """The number of records in a second."""
    cpu_us: float
    """The CPU time (us) of the broker for a record."""
    client: float
    """The CPU time of the consumers, as a share of one core."""


class ShareConsumer:
    """A member of a share group with one partition, and its share session."""

    def __init__(self, port: int, group_id: str, member_id: str, topic: str, topic_id: bytes) -> None:
        self._port = port
        self._group_id = group_id
        self._member_id = member_id
        self._topic = topic
        self._topic_id = topic_id
        self._epoch = 0
        self._connection: Connection | None = None

    async def join(self) -> None:
        """Join the group, and return when the partition is assigned and its records can be acknowledged."""
        self._connection = await open_connection(self._port)
        epoch = 0
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                member_epoch=epoch,
                subscribed_topic_names=[self._topic],
            )
            answer = await self._connection.ask(request, ShareGroupHeartbeatResponse, VERSION)
            if answer.error_code not in COORDINATOR_STARTING_ERRORS:
                assert answer.error_code == ErrorCode.NONE, answer
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return
            await asyncio.sleep(0.1)

    async def fetch(self, acquired: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
        """Accept the records that were acquired before, and acquire more. Returns the first and last
        offsets of runs.
        """
        assert self._connection is not None
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
            for first, last in acquired
        ]
        topics = []
        if batches or not self._epoch:
            partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
            topics = [FetchTopic(topic_id=self._topic_id, partitions=[partition])]
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            max_records=RECORDS_AT_ONCE,
            batch_size=RECORDS_AT_ONCE,
            topics=topics,
        )
        answer = await self._connection.ask(request, ShareFetchResponse, VERSION)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self._epoch += 1
        runs = []
        for topic in answer.responses:
            for data in topic.partitions:
                assert data.acknowledge_error_code == ErrorCode.NONE, ErrorCode(data.acknowledge_error_code)
                assert data.error_code in (ErrorCode.NONE, *COORDINATOR_STARTING_ERRORS), ErrorCode(data.error_code)
                runs += [(each.first_offset, each.last_offset) for each in data.acquired_records]
        return runs

    async def acknowledge(self, first: int, last: int) -> None:
        """Accept a run of records."""
        assert self._connection is not None
        batch = Acknowledged(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = await self._connection.ask(request, ShareAcknowledgeResponse, VERSION)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        error = answer.responses[0].partitions[0].error_code
        assert error == ErrorCode.NONE, ErrorCode(error)
        self._epoch += 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _consumed(contender: Contender, records: int) -> ConsumptionRun:
    """Let all consumers fetch and acknowledge until each record of a topic is acknowledged."""
    with contender.new_topic() as (client, name):
        topic_id = _filled(client, name, records)
        consumers = [ShareConsumer(contender.port, name, f"{name}-{each}", name, topic_id) for each in range(CONSUMERS)]
        before = time.process_time()
        (took_s, count), spent = contender.measure_usage(lambda: asyncio.run(_consume_all(consumers, records)))
        client_s = time.process_time() - before
    return ConsumptionRun(count / took_s, 1e6 * spent.cpu.total_s / count, client_s / spent.seconds)


async def _consume_all(consumers: Sequence[ShareConsumer], records: int) -> tuple[float, int]:
    """The time (s) from the first fetch until the last record is acquired, and the number of records."""
    await asyncio.gather(*(each.join() for each in consumers))
    left = records
    began = ended = time.perf_counter()

    async def consume(consumer: ShareConsumer) -> None:
        nonlocal left, ended
        acquired: list[tuple[int, int]] = []
        while left > 0:
            acquired = await consumer.fetch(acquired)
            left -= sum(last - first + 1 for first, last in acquired)
            ended = time.perf_counter()
            if ended - began > PATIENCE_S:
                raise TimeoutError(f"{left} of {records} records are not delivered")

    try:
        await asyncio.gather(*map(consume, consumers))
    finally:
        for each in consumers:
            each.close()
    return ended - began, records - left


def _acknowledged(contender: Contender, count: int) -> list[float]:
    """Return the latencies (ms) of acknowledgements."""
    with contender.new_topic() as (client, name):
        topic_id = _filled(client, name, count * ACKNOWLEDGED_AT_ONCE)
        consumer = ShareConsumer(contender.port, name, f"{name}-0", name, topic_id)
        return asyncio.run(_acknowledge_all(consumer, count))


async def _acknowledge_all(consumer: ShareConsumer, count: int) -> list[float]:
    await consumer.join()
    times: list[float] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(times) < count:
        for first, last in await consumer.fetch():
            for start in range(first, last + 1, ACKNOWLEDGED_AT_ONCE):
                began = time.perf_counter()
                await consumer.acknowledge(start, min(start + ACKNOWLEDGED_AT_ONCE - 1, last))
                times.append(1000 * (time.perf_counter() - began))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(times)} of {count} acknowledgements")
    consumer.close()
    return times


def _filled(client: Client, topic: str, records: int) -> bytes:
    """Fill partition 0, from which the group of the topic's name reads from the start. Returns the id of the topic."""
    frame = produce_frame(topic, batch_of([VALUE_SIZE] * BATCH_RECORDS, time.time_ns() // 1_000_000))
    for _ in range(records // BATCH_RECORDS):
        client.exchange(frame)
    reset = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=topic, configs=[reset])
    answer = client.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), IncrementalAlterConfigsResponse, 1
    ).responses[0]
    assert answer.error_code == ErrorCode.NONE, answer
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[topic]), FindCoordinatorResponse, 4)
    described = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, 12)
    return described.topics[0].topic_id
