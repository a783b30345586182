"""Brokers ask the share coordinator of a node: where it is, and for the state of share partitions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.coordinators.share_coordinator import coordinator_key, is_share_key
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import delete_share_group_state as delete
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages import read_share_group_state as read
from moldau.protocol.messages import read_share_group_state_summary as summary
from moldau.protocol.messages import write_share_group_state as write
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from tests.support.node import Client, Node, serve_and
from tests.support.share_coordinator_conversation import REQUESTS, UPDATES_PER_SNAPSHOT, converse

GROUP = "g:1"
SHARE = 2
SETTINGS: dict[str, Any] = {
    "share_coordinator_state_topic_replication_factor": 1,
    "share_coordinator_state_topic_min_isr": 1,
    "share_coordinator_state_topic_num_partitions": 3,
    "share_coordinator_snapshot_update_records_per_snapshot": 1,
    "share_coordinator_state_topic_prune_interval_ms": 1_000,
}


async def found(client: Client, key: str, version: int = 6) -> Coordinator:
    """The coordinator of a key, once its topic has a leader."""
    while True:
        answer = await client.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), version)
        (coordinator,) = answer.coordinators
        if coordinator.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            assert isinstance(coordinator, Coordinator)
            return coordinator


async def partitions(client: Client, request: object, version: int = 0) -> list[Any]:
    """The results of all partitions, once the coordinator has loaded."""
    while True:
        answer = await client.ask(request, version)
        results = [each for topic in answer.results for each in topic.partitions]
        if all(each.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for each in results):
            return results


def initialize_request(topic_id: bytes, *indexes: int) -> initialize.InitializeShareGroupStateRequest:
    data = [initialize.PartitionData(partition=index, state_epoch=1, start_offset=-1) for index in indexes]
    topic = initialize.InitializeStateData(topic_id=topic_id, partitions=data)
    return initialize.InitializeShareGroupStateRequest(group_id=GROUP, topics=[topic])


def write_request(topic_id: bytes, index: int, last: int) -> write.WriteShareGroupStateRequest:
    data = write.PartitionData(
        partition=index,
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        delivery_complete_count=last + 1,
        state_batches=[write.StateBatch(first_offset=0, last_offset=last, delivery_state=2, delivery_count=1)],
    )
    topic = write.WriteStateData(topic_id=topic_id, partitions=[data])
    return write.WriteShareGroupStateRequest(group_id=GROUP, topics=[topic])


def read_request(topic_id: bytes, index: int) -> read.ReadShareGroupStateRequest:
    topic = read.ReadStateData(topic_id=topic_id, partitions=[read.PartitionData(partition=index, leader_epoch=0)])
    return read.ReadShareGroupStateRequest(group_id=GROUP, topics=[topic])


def summary_request(topic_id: bytes, index: int) -> summary.ReadShareGroupStateSummaryRequest:
    data = summary.PartitionData(partition=index, leader_epoch=0)
    topic = summary.ReadStateSummaryData(topic_id=topic_id, partitions=[data])
    return summary.ReadShareGroupStateSummaryRequest(group_id=GROUP, topics=[topic])


def delete_request(topic_id: bytes, index: int) -> delete.DeleteShareGroupStateRequest:
    topic = delete.DeleteStateData(topic_id=topic_id, partitions=[delete.PartitionData(partition=index)])
    return delete.DeleteShareGroupStateRequest(group_id=GROUP, topics=[topic])


def test_the_life_of_a_state() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", 3)
        coordinator = await found(client, coordinator_key(ShareKey(GROUP, topic_id, 0)))
        assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.NONE, 1)
        initialized = await partitions(client, initialize_request(topic_id, 0, 1, 2, 3))
        assert [each.error_code for each in initialized] == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert initialized[3].error_message == "This server does not host this topic-partition."
        for last in range(4):
            (written,) = await partitions(client, write_request(topic_id, 0, last), 1)
            assert (written.error_code, written.error_message) == (0, None)
        (state,) = await partitions(client, read_request(topic_id, 0))
        assert (state.error_code, state.state_epoch, state.start_offset) == (0, 1, 0)
        assert state.state_batches == [
            read.StateBatch(first_offset=0, last_offset=3, delivery_state=2, delivery_count=1)
        ]
        (sums,) = await partitions(client, summary_request(topic_id, 0), 1)
        assert (sums.start_offset, sums.delivery_complete_count) == (0, 4)
        assert [each.error_code for each in await partitions(client, delete_request(topic_id, 0))] == [0]
        (state,) = await partitions(client, read_request(topic_id, 0))
        assert state.error_code == ErrorCode.INVALID_REQUEST
        assert state.error_message == "Read operation on uninitialized share partition not allowed."

    serve_and(story, **SETTINGS)


def test_the_state_survives_a_restart_and_its_log_is_pruned() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", 1)
        key = ShareKey(GROUP, topic_id, 0)
        await found(client, coordinator_key(key))
        await partitions(client, initialize_request(topic_id, 0))
        for last in range(10):
            await partitions(client, write_request(topic_id, 0, last), 1)
        index = node.broker.coordinators.share_coordinator.partition_of(key)
        partition = node.broker.replicas.get("__share_group_state", index)
        assert partition is not None and partition.log.end_offset == 11
        await asyncio.sleep(2)
        assert partition.log.log_start_offset == 10
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        node.boot()
        client = await node.connect()
        await found(client, coordinator_key(key))
        (state,) = await partitions(client, read_request(topic_id, 0))
        assert [(each.first_offset, each.last_offset) for each in state.state_batches] == [(0, 9)]

    serve_and(story, **SETTINGS)


def test_a_share_partition_that_is_named_twice_has_one_result() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t")
        await found(client, coordinator_key(ShareKey(GROUP, topic_id, 0)))
        assert [each.error_code for each in await partitions(client, initialize_request(topic_id, 0, 0))] == [0]
        written = write_request(topic_id, 0, 4)
        written.topics += write_request(topic_id, 0, 6).topics
        assert [each.error_code for each in await partitions(client, written)] == [0]
        asked = read_request(topic_id, 0)
        asked.topics *= 2
        (state,) = await partitions(client, asked)
        assert (state.error_code, [each.last_offset for each in state.state_batches]) == (0, [6])
        deleted = delete_request(topic_id, 0)
        deleted.topics[0].partitions *= 2
        assert [each.error_code for each in await partitions(client, deleted)] == [0]

    serve_and(story, **SETTINGS)


def test_an_empty_request_has_an_empty_response() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for request in (
            read.ReadShareGroupStateRequest(group_id=""),
            read.ReadShareGroupStateRequest(group_id="g"),
            read.ReadShareGroupStateRequest(group_id="g", topics=[read.ReadStateData(topic_id=bytes(16))]),
        ):
            assert await client.ask(request, 0) == read.ReadShareGroupStateResponse()

    serve_and(story, **SETTINGS)


def test_a_key_of_another_form_has_no_coordinator() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        key = coordinator_key(ShareKey("g", b"t" * 16, 0))
        assert (await found(client, "g")).error_code == ErrorCode.INVALID_REQUEST
        assert (await found(client, key, 5)).error_code == ErrorCode.INVALID_REQUEST
        assert (await found(client, key)).error_code == ErrorCode.NONE

    serve_and(story, **SETTINGS)


@pytest.mark.parametrize(
    ("key", "is_key"),
    [
        (coordinator_key(ShareKey("g", bytes(range(16)), 12)), True),
        (coordinator_key(ShareKey("a:b:c", bytes(16), 0)), True),
        (coordinator_key(ShareKey(" ", bytes(16), 0)), False),
        ("g:AAAAAAAAAAAAAAAAAAAAAA:x", False),
        ("g:AAAA:0", False),
        ("", False),
        ("g", False),
        (":0", False),
    ],
)
def test_the_form_of_keys(key: str, is_key: bool) -> None:
    assert is_share_key(key) is is_key


def test_a_conversation_of_200_requests_is_answered_as_apache_kafka_answers_it() -> None:
    expected = Path(__file__).with_name("kafka_4_3_1_share_state.txt").read_text().splitlines()
    lines: list[str] = []

    async def story(node: Node) -> None:
        client = await node.connect()
        lines.extend(await converse(client, await client.create("t", 2)))

    settings = SETTINGS | {
        "share_coordinator_state_topic_num_partitions": 1,
        "share_coordinator_snapshot_update_records_per_snapshot": UPDATES_PER_SNAPSHOT,
    }
    serve_and(story, **settings)
    assert len(expected) == REQUESTS
    assert lines == expected
