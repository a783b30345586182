"""A transactional producer of either protocol against one simulated broker, and what readers see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from tests.support.coordinators import TRANSACTION, until_coordinated
from tests.support.node import Client, Node

ID = "payments"
GROUP = "readers"
SETTINGS: dict[str, Any] = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
NONE = ErrorCode.NONE
OLD = 11
"""A version of Produce with which producers add their partitions themselves."""
NEW = 12
COMMITTED = 1
"""The isolation level read_committed."""


class Producer:
    """A transactional producer of the older protocol, or of the newer one."""

    def __init__(self, client: Client, wall_ms: Callable[[], int], *, is_new: bool = True) -> None:
        self.wall_ms = wall_ms
        self.client = client
        self.is_new = is_new
        self.id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def init(self) -> ErrorCode:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        reply = await self.client.ask(request, 5)
        self.id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}
        return ErrorCode(reply.error_code)

    async def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        reply = await self.client.ask(request, version)
        return [
            ErrorCode(each.partition_error_code)
            for result in reply.results_by_topic_v3_and_below
            for each in result.results_by_partition
        ]

    async def send(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        transactional_id: str | None = ID,
        codec: Codec = Codec.NONE,
    ) -> tuple[ErrorCode, int]:
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            [Record(value=value, timestamp=self.wall_ms()) for value in values],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
            codec=codec,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5_000, topic_data=[data])
        reply = await self.client.ask(request, NEW if self.is_new else OLD)
        (answer,) = reply.responses[0].partition_responses
        if answer.error_code == NONE:
            self.sequences[partition] = sequence + len(values)
        return ErrorCode(answer.error_code), answer.base_offset

    async def end(self, *, commits: bool, version: int | None = None) -> ErrorCode:
        request = EndTxnRequest(transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, committed=commits)
        version = (5 if self.is_new else 4) if version is None else version
        reply = await self.client.ask(request, version)
        if self.is_new and reply.error_code == NONE:
            self.id, self.epoch, self.sequences = reply.producer_id, reply.producer_epoch, {}
        return ErrorCode(reply.error_code)

    async def commit_offset(self, topic: str, offset: int) -> ErrorCode:
        if not self.is_new:
            request = AddOffsetsToTxnRequest(
                transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, group_id=GROUP
            )
            assert (await self.client.ask(request, 3)).error_code == NONE
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        reply = await self.client.ask(
            TxnOffsetCommitRequest(
                transactional_id=ID,
                group_id=GROUP,
                producer_id=self.id,
                producer_epoch=self.epoch,
                topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
            ),
            5 if self.is_new else 3,
        )
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    async def commit_by_id(self, topic_id: bytes, *indexes: int) -> tuple[bytes, dict[int, int]]:
        """Commit offset 3 of the partitions of a topic that is named by its id.

        Returns the id in the response, and the error of each partition.
        """
        partitions = [TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=3) for each in indexes]
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)],
        )
        (topic,) = (await self.client.ask(request, 6)).topics
        return topic.topic_id, {each.partition_index: each.error_code for each in topic.partitions}


async def started(node: Node, *, is_new: bool = True) -> Producer:
    """A producer with a coordinator, and a topic `t` of two partitions."""
    client = await node.connect()
    await client.create("t", partitions=2)
    await until_coordinated(client.ask, ID, TRANSACTION)
    await until_coordinated(client.ask, GROUP)
    producer = Producer(client, node.broker.environment.wall_ms, is_new=is_new)
    await until_done(producer.init)
    return producer


async def until_done(ask: Any, *arguments: Any) -> Any:
    """Repeat a request while the coordinator loads, or completes the transaction before."""
    for _ in range(100):
        error = await ask(*arguments)
        if error not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ):
            return error
        await asyncio.sleep(0.1)
    raise AssertionError(error)


async def read(client: Client, partition: int = 0, isolation_level: int = COMMITTED) -> list[bytes]:
    """The records that a consumer with this isolation level returns, without those of aborted transactions."""
    found = await client.fetch("t", partition=partition, isolation_level=isolation_level)
    assert found.error_code == NONE
    starts = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or []]
    skipped: dict[int, None] = {}
    values: list[bytes] = []
    data = bytes(cast("bytes", found.records or b""))
    for position, header in iterate_batches(data):
        for producer_id, first_offset in list(starts):
            if first_offset <= header.base_offset:
                starts.remove((producer_id, first_offset))
                skipped[producer_id] = None
        if header.is_control:
            skipped.pop(header.producer_id, None)
        elif header.producer_id not in skipped:
            values += [record.value or b"" for record in records_of(data, position, header)]
    return values


async def committed_offset(client: Client) -> tuple[ErrorCode, int]:
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    reply = await client.ask(OffsetFetchRequest(groups=[group], require_stable=False), 8)
    (answer,) = reply.groups
    if not answer.topics:
        return ErrorCode(answer.error_code), -1
    return ErrorCode(answer.topics[0].partitions[0].error_code), answer.topics[0].partitions[0].committed_offset
