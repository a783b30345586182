"""Conversations of transactional producers with one broker: both protocols, errors by version, readers, tools."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from moldau.protocol.record_validation import LOOP_EXPANDED_SIZE_MAX
from tests.support.node import Client, Node, serve_and
from tests.support.transactional_producer import (
    COMMITTED,
    GROUP,
    ID,
    NONE,
    SETTINGS,
    Producer,
    committed_offset,
    read,
    started,
    until_done,
)


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
        latter = Producer(await node.connect(), node.broker.environment.wall_ms)
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
        # Partitions of internal topics are of the coordinators alone, also without an authorizer.
        assert await producer.add("__transaction_state", 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        described = await producer.client.ask(DescribeTransactionsRequest(transactional_ids=[ID, "other"]), 0)
        known, unknown = described.transaction_states
        assert (known.transaction_state, known.topics) == ("Empty", [])
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    serve_and(story, **SETTINGS)


def test_brokers_verify_and_add_several_transactions_in_one_request() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)

        def entry(
            transactional_id: str, *, verify_only: bool, partitions: tuple[int, ...] = (0, 1), topic: str = "t"
        ) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
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
        missing = {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for verify_only in (True, False):
            assert await errors(5, entry(ID, verify_only=verify_only, partitions=(0, 7))) == {ID: missing}
        await producer.client.create("other", 2)
        for version in (4, 5):
            found = await errors(version, entry(ID, verify_only=True, topic="other"))
            assert found == {ID: {ErrorCode.TRANSACTION_ABORTABLE}}
        assert await producer.end(commits=True) is NONE

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize("version", [3, 5])
def test_one_error_of_all_partitions_repeats_what_the_request_repeats(version: int) -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        named = [("t", [0, 0]), ("t", []), ("t", [1, 0])]

        async def results(epoch: int, named: list[tuple[str, list[int]]]) -> list[tuple[str, list[tuple[int, int]]]]:
            topics = [AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in named]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer.id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=ID,
                        producer_id=producer.id,
                        producer_epoch=epoch,
                        verify_only=False,
                        topics=topics,
                    )
                ],
            )
            reply = await producer.client.ask(request, version)
            found = (
                reply.results_by_topic_v3_and_below if version < 4 else reply.results_by_transaction[0].topic_results
            )
            return [
                (topic.name, [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition])
                for topic in found
            ]

        fenced = ErrorCode.PRODUCER_FENCED
        for epoch, error in ((producer.epoch, NONE), (producer.epoch + 1, fenced)):
            told = [(name, [(index, error) for index in partitions]) for name, partitions in named]
            assert await results(epoch, named) == told
        unknown, other = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await results(producer.epoch, [("t", [9, 9]), ("t", [0, 0])]) == [("t", [(9, unknown), (0, other)])]
        assert await results(producer.epoch, []) == []

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


@pytest.mark.parametrize("is_new", [True, False])
def test_a_large_first_batch_is_appended_once_the_coordinator_knows_of_the_partition(is_new: bool) -> None:
    async def story(node: Node) -> None:
        producer = await started(node, is_new=is_new)
        memory, batches = node.broker.request_memory, node.broker.large_batches
        if not is_new:
            assert await producer.add("t", 0) == [NONE]
        large = bytes(LOOP_EXPANDED_SIZE_MAX + 1)
        assert await producer.send("t", large, codec=Codec.ZSTD) == (NONE, 0)
        assert await producer.send("t", b"small") == (NONE, 1)
        assert batches.examined_count == 1
        assert (batches.waiting_bytes, memory.used_size) == (0, 0)
        assert await producer.end(commits=True) == NONE
        assert await eventually(producer.client, 0, [large, b"small"])
        refused = await producer.send("t", large, partition=1, transactional_id="another", codec=Codec.ZSTD)
        assert refused[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert batches.examined_count == 1
        assert memory.used_size == 0

    serve_and(story, **SETTINGS)


async def finalize(client: Client, level: int, kind: int) -> None:
    """Move `transaction.version` while clients are at work. `kind`: 1 for an upgrade, 2 for a safe downgrade."""
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=kind)
    reply = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert reply.error_code == NONE, reply.error_message
    await asyncio.sleep(0.5)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_transactions_are_ended_through_a_downgrade_and_an_upgrade_of_the_feature(is_new: bool, commits: bool) -> None:
    """A client keeps to the protocol that it found when it connected."""

    async def story(node: Node) -> None:
        producer = await started(node, is_new=is_new)
        expected: list[bytes] = []
        for number, (level, kind) in enumerate(((0, 2), (1, 1), (2, 1), (1, 2), (0, 2), (2, 1))):
            value, offset = b"%d" % number, number
            if not is_new:
                assert await until_done(first_of(producer.add), "t", 0) is NONE
            assert (await send_patiently(producer, value))[0] == NONE
            assert await producer.commit_offset("t", offset) == NONE
            await finalize(producer.client, level, kind)
            assert (await send_patiently(producer, value))[0] == NONE
            assert await until_done(partial(producer.end, commits=commits)) == NONE
            if commits:
                expected += [value, value]
            assert await eventually(producer.client, 0, expected)
            wanted = offset if commits else -1
            while (await committed_offset(producer.client))[1] != wanted:
                await asyncio.sleep(0.1)
        assert await everything_is_stable(producer.client)

    serve_and(story, **SETTINGS)


async def send_patiently(producer: Producer, value: bytes) -> tuple[ErrorCode, int]:
    """A producer of the newer protocol may find its transaction before still being completed."""
    for _ in range(100):
        error, offset = await producer.send("t", value)
        if error not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS):
            break
        await asyncio.sleep(0.1)
    return error, offset


async def everything_is_stable(client: Client) -> bool:
    found = await client.fetch("t", isolation_level=COMMITTED)
    return found.last_stable_offset == found.high_watermark


def test_offsets_of_topics_named_by_id() -> None:
    """KIP-1319, in version 6; as Apache Kafka 4.4.0 answers."""

    async def story(node: Node) -> None:
        producer = await started(node)
        topic_id = node.broker.image.topics.ids["t"]
        commit = partial(producer.commit_by_id, topic_id)
        while (await commit(0))[1][0] in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS):
            await asyncio.sleep(0.01)
        assert await commit(0, 7) == (topic_id, {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0: NONE})
        for unknown in (b"z" * 16, bytes(16)):
            refused = dict.fromkeys((0, 1), ErrorCode.UNKNOWN_TOPIC_ID)
            assert await producer.commit_by_id(unknown, 0, 1) == (unknown, refused)
        assert await producer.end(commits=True) is NONE
        assert await eventually_committed(await node.connect(), 3)

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize("is_new", [False, True])
def test_an_offset_of_a_topic_that_is_named_is_stored_with_its_id(is_new: bool) -> None:
    """As Apache Kafka 4.4.0 does; 4.3.1 stores no id."""

    async def story(node: Node) -> None:
        producer = await started(node, is_new=is_new)
        assert await until_done(producer.commit_offset, "t", 5) is NONE
        assert await producer.end(commits=True) is NONE
        assert await eventually_committed(producer.client, 5)
        runner = node.broker.services.groups.runner_of(GROUP)
        assert not isinstance(runner, ErrorCode)
        stored = runner.shard._offsets.committed_offsets(GROUP).offsets["t", 0]
        assert stored.topic_id == node.broker.image.topics.ids["t"]

    serve_and(story, **SETTINGS)


async def eventually_committed(client: Client, offset: int) -> bool:
    for _ in range(100):
        if await committed_offset(client) == (NONE, offset):
            return True
        await asyncio.sleep(0.01)
    return False
