"""Conversations of transactional producers with one broker: both protocols, errors by version, readers, tools."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.config.internal_topics import GROUP_METADATA_TOPIC
from protocol.batch_iterator import iterate_batches
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from protocol.record_builder import Record, build_batch
from protocol.record_reader import records_of
from tests.support.node import Client, Node, serve_and

ID = "payments"
GROUP = "readers"
SETTINGS: dict[str, Any] = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
NONE = ErrorCode.NONE
OLD = 11
"""A version of Produce whose producers add their partitions themselves."""
NEW = 12
COMMITTED = 1
"""The isolation level read_committed."""


class Producer:
    """A transactional producer of the older protocol, or of the newer one."""

    def __init__(self, node: Node, client: Client, *, is_new: bool = True) -> None:
        self.wall_ms = node.broker.environment.wall_ms
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
        self, topic: str, *values: bytes, partition: int = 0, transactional_id: str | None = ID
    ) -> tuple[ErrorCode, int]:
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            [Record(value=value, timestamp=self.wall_ms()) for value in values],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
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


async def started(node: Node, *, is_new: bool = True) -> Producer:
    """A producer whose coordinator is there, and a topic `t` of two partitions."""
    client = await node.connect()
    await client.create("t", partitions=2)
    await coordinator(client, ID, 1)
    await coordinator(client, GROUP, 0)
    producer = Producer(node, client, is_new=is_new)
    await until_done(producer.init)
    return producer


async def coordinator(client: Client, key: str, key_type: int) -> None:
    for _ in range(100):
        found = await client.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 6)
        if found.coordinators[0].error_code == NONE:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("no coordinator")


async def until_done(ask: Any, *arguments: Any) -> Any:
    """Asked again while the coordinator loads, or completes the transaction before."""
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
    """What a consumer of that isolation level takes, as clients do: without records of aborted transactions."""
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


@pytest.mark.parametrize("is_new", [True, False])
def test_records_count_from_the_commit_on_and_never_after_an_abort(is_new: bool) -> None:
    async def story(node: Node) -> None:
        producer = await started(node, is_new=is_new)
        reader = await node.connect()
        for commits, value in ((True, b"a"), (False, b"b"), (True, b"c")):
            if not is_new:
                assert await until_done(first_of(producer.add), "t", 0, 1) is NONE
            before = await read(reader)
            for partition in (0, 1):
                error, _ = await producer.send("t", value, partition=partition)
                assert error is NONE
            assert await read(reader) == before, "the transaction is open"
            assert await read(reader, isolation_level=0) != before
            assert await producer.end(commits=commits) is NONE
        for partition in (0, 1):
            assert await eventually(reader, partition, [b"a", b"c"])

    serve_and(story, **SETTINGS)


def first_of(ask: Any) -> Any:
    async def first(*arguments: Any) -> ErrorCode:
        errors: list[ErrorCode] = await ask(*arguments)
        return errors[0]

    return first


async def eventually(client: Client, partition: int, values: list[bytes]) -> bool:
    """The answer to EndTxn does not wait for the markers."""
    for _ in range(100):
        if await read(client, partition) == values:
            return True
        await asyncio.sleep(0.05)
    return False


def test_the_epoch_moves_with_every_transaction_of_the_newer_protocol() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        epochs = []
        for _ in range(3):
            assert (await producer.send("t", b"x"))[0] is NONE
            assert await producer.end(commits=True) is NONE
            epochs.append(producer.epoch)
        assert epochs == [1, 2, 3]

    serve_and(story, **SETTINGS)


def test_a_partition_that_was_not_added_takes_no_record_of_the_older_protocol() -> None:
    async def story(node: Node) -> None:
        producer = await started(node, is_new=False)
        assert await until_done(first_of(producer.add), "t", 0) is NONE
        error, _ = await producer.send("t", b"x", partition=1)
        assert error is ErrorCode.TRANSACTION_ABORTABLE
        assert (await producer.send("t", b"x", transactional_id=None))[0] is (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        assert (await producer.send("t", b"x"))[0] is NONE

    serve_and(story, **SETTINGS)


def test_a_successor_fences_the_producer_and_ends_its_transaction() -> None:
    async def story(node: Node) -> None:
        former = await started(node)
        assert (await former.send("t", b"x"))[0] is NONE
        latter = Producer(node, await node.connect())
        assert await until_done(latter.init) is NONE
        assert latter.id == former.id and latter.epoch > former.epoch
        assert (await former.send("t", b"y"))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await former.end(commits=True) is ErrorCode.PRODUCER_FENCED
        assert await former.end(commits=True, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH, "as older clients know it"
        assert (await latter.send("t", b"z"))[0] is NONE
        assert await latter.end(commits=True) is NONE
        assert await eventually(latter.client, 0, [b"z"])

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize("is_new", [True, False])
def test_offsets_count_from_the_commit_on(is_new: bool) -> None:
    async def story(node: Node) -> None:
        producer = await started(node, is_new=is_new)
        reader = await node.connect()
        assert await until_done(producer.commit_offset, "t", 5) is NONE
        assert (await committed_offset(reader))[1] == -1
        assert await producer.end(commits=True) is NONE
        await asyncio.sleep(1)
        assert await committed_offset(reader) == (NONE, 5)
        assert await until_done(producer.commit_offset, "t", 9) is NONE
        assert await producer.end(commits=False) is NONE
        await asyncio.sleep(1)
        assert await committed_offset(reader) == (NONE, 5)

    serve_and(story, **SETTINGS)


def test_nothing_is_added_where_one_partition_does_not_exist() -> None:
    async def story(node: Node) -> None:
        producer = await started(node, is_new=False)
        assert await producer.add("t", 0, 7) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        described = await producer.client.ask(DescribeTransactionsRequest(transactional_ids=[ID, "other"]), 0)
        known, unknown = described.transaction_states
        assert (known.transaction_state, known.topics) == ("Empty", [])
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    serve_and(story, **SETTINGS)


def test_brokers_verify_and_add_several_transactions_in_one_request() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)

        def entry(transactional_id: str, *, verify_only: bool) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
            )

        async def errors(version: int, *entries: AddPartitionsToTxnTransaction) -> dict[str, set[int]]:
            reply = await producer.client.ask(AddPartitionsToTxnRequest(transactions=list(entries)), version)
            return {
                result.transactional_id: {
                    each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition
                }
                for result in reply.results_by_transaction
            }

        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await errors(5, entry(ID, verify_only=False), entry("other", verify_only=False)) == {
            ID: {NONE},
            "other": {unknown},
        }
        assert await errors(5, entry(ID, verify_only=True)) == {ID: {NONE}}
        assert await producer.end(commits=True) is NONE

    serve_and(story, **SETTINGS)


def test_transactions_are_listed_by_state_producer_and_name() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        assert (await producer.send("t", b"x"))[0] is NONE

        async def listed(version: int = 2, **filters: Any) -> list[str]:
            reply = await producer.client.ask(ListTransactionsRequest(**filters), version)
            assert reply.error_code == NONE
            return [each.transactional_id for each in reply.transaction_states]

        assert await listed() == [ID]
        assert await listed(state_filters=["Ongoing"]) == [ID]
        assert await listed(state_filters=["Empty"]) == []
        assert await listed(producer_id_filters=[producer.id + 1]) == []
        assert await listed(transactional_id_pattern="pay.*") == [ID]
        assert await listed(transactional_id_pattern="pay") == []
        reply = await producer.client.ask(ListTransactionsRequest(state_filters=["Nowhere"]), 2)
        assert reply.unknown_state_filters == ["Nowhere"]
        reply = await producer.client.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        described = await producer.client.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
        (state,) = described.transaction_states
        assert (state.transaction_state, state.producer_id, state.topics[0].partitions) == ("Ongoing", producer.id, [0])

    serve_and(story, **SETTINGS)


def test_a_tool_aborts_a_hanging_transaction_partition_by_partition() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        assert (await producer.send("t", b"x"))[0] is NONE
        topics = [
            WritableTxnMarkerTopic(name="t", partition_indexes=[0]),
            WritableTxnMarkerTopic(name="none", partition_indexes=[3]),
        ]
        marker = WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=topics,
            coordinator_epoch=0,
        )
        reply = await producer.client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        known, unknown = reply.markers[0].topics
        assert known.partitions[0].error_code == NONE
        assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client = await node.connect()
        assert await read(client) == []
        found = await client.fetch("t", isolation_level=COMMITTED)
        assert found.last_stable_offset == found.high_watermark == 2

    serve_and(story, **SETTINGS)


def test_what_names_no_transactional_id_is_refused() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        end = EndTxnRequest(transactional_id="", producer_id=1, producer_epoch=0, committed=True)
        assert (await client.ask(end, 5)).error_code == ErrorCode.INVALID_REQUEST
        offsets = AddOffsetsToTxnRequest(transactional_id="", producer_id=1, producer_epoch=0, group_id=GROUP)
        assert (await client.ask(offsets, 4)).error_code == ErrorCode.INVALID_REQUEST
        end.transactional_id = ID
        assert (await client.ask(end, 5)).error_code == ErrorCode.NOT_COORDINATOR
        assert GROUP_METADATA_TOPIC not in node.broker.replicas.by_name

    serve_and(story, **SETTINGS)
