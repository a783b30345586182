"""Faults on a whole node: what clients get, and what the request has done."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.faults.faults import Faults
from moldau.broker.faults.requests import FaultyRequests
from moldau.broker.network.route import ListenerRole
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.schema import WireType, fields_of, spec_of
from tests.support.apis import APIS
from tests.support.node import Client, Closed, Node, batch, fetch_request, produce_request, serve_with_faults_and

ERROR = ErrorCode.POLICY_VIOLATION
BY_NAME_VERSION = 12
"""The last version of Produce in which topics are named; an id that is unknown is refused before all else."""


def filled(cls: type[object]) -> object:
    """A request of this class with one element in each list."""
    made = cls.__new__(cls)
    for field in fields_of(cls):
        value: Any = field.default
        if field.struct is not None:
            value = filled(field.struct)
        elif field.kind is WireType.STRING:
            value = "t"
        elif field.kind in (WireType.BYTES, WireType.RECORDS):
            value = b""
        elif field.kind is WireType.UUID:
            value = bytes(16)
        elif field.is_array:
            value = 0
        if field.is_array:
            value = [value]
        elif field.struct is not None and field.tag is not None:
            value = None
        setattr(made, field.name, value)
    return made


def errors_in(value: object) -> set[int]:
    """All error codes in a response."""
    found: set[int] = set()
    for field in fields_of(type(value)):
        inner = getattr(value, field.name)
        if field.name.endswith("error_code"):
            found.add(inner)
        elif field.struct is not None:
            for each in inner or () if field.is_array else [inner] * (inner is not None):
                found |= errors_in(each)
    return found


@pytest.mark.parametrize(
    "row", [row for row in APIS if row.listeners.role & ListenerRole.BROKER], ids=lambda row: row.name
)
def test_an_error_is_given_for_each_api(row: Api[Any]) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.faults.add({"scope": {"api": row.name}, "do": {"error": ERROR.name}})
        request = filled(row.request)
        if isinstance(request, ProduceRequest):
            request.acks = -1  # Without an answer there is no error.
        last = spec_of(row.request).versions.last
        answer = await client.ask(request, min(last, BY_NAME_VERSION) if row.name == "Produce" else last)
        assert ERROR in errors_in(answer), answer

    serve_with_faults_and(story)


def test_an_error_without_acks_ends_the_connection() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        node.faults.add({"scope": {"api": "Produce"}, "do": {"error": "MESSAGE_TOO_LARGE"}})
        client.send(produce_request("t", batch("a"), acks=0), 9)
        with pytest.raises(Closed):
            await client.ask(MetadataRequest(topics=None), 12)

    serve_with_faults_and(story)


def test_an_error_is_for_what_the_scope_names_and_the_rest_has_its_effect() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t", 2)
        await client.create("u")
        both = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[data(0), data(1)]),
                TopicProduceData(name="u", partition_data=[data(0)]),
            ],
        )
        node.faults.add(
            {
                "scope": {"api": "Produce", "topic": "t"},
                "when": {"once": True},
                "do": {"error": "NOT_LEADER_OR_FOLLOWER"},
            }
        )
        assert produced(await client.ask(both, 9)) == {("t", 0): 6, ("t", 1): 6, ("u", 0): 0}
        assert [await end(client, "t", 0), await end(client, "t", 1), await end(client, "u", 0)] == [0, 0, 1]
        assert node.faults.in_force == []
        node.faults.add({"scope": {"topic": "t", "partition": 1}, "do": {"error": "NOT_LEADER_OR_FOLLOWER"}})
        assert produced(await client.ask(both, 9)) == {("t", 0): 0, ("t", 1): 6, ("u", 0): 0}
        reply = await client.ask(fetch_request([("t", 0, 0), ("t", 1, 0)]), 12)
        assert {each.partition_index: each.error_code for each in reply.responses[0].partitions} == {0: 0, 1: 6}
        by_id = await client.ask(fetch_request([(topic_id, 1, 0)]), 13)
        assert by_id.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        node.faults.end_all()
        assert produced(await client.ask(both, 9)) == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
        assert [await end(client, "t", 0), await end(client, "t", 1), await end(client, "u", 0)] == [2, 1, 3]

    serve_with_faults_and(story)


def test_an_error_for_a_group_leaves_other_groups_alone() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.faults.add({"scope": {"group": "g"}, "do": {"error": "REBALANCE_IN_PROGRESS"}})
        beats = [HeartbeatRequest(group_id=group, generation_id=1, member_id="m") for group in ("g", "h")]
        errors = [(await client.ask(beat, 4)).error_code for beat in beats]
        assert errors[0] == ErrorCode.REBALANCE_IN_PROGRESS != errors[1]
        found = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"]), 6)
        assert {each.key: each.error_code == ErrorCode.REBALANCE_IN_PROGRESS for each in found.coordinators} == {
            "g": True,
            "h": False,
        }

    serve_with_faults_and(story)


def test_a_given_answer_takes_the_place_of_the_handler() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        answer = {"responses": [{"name": "t", "partitionResponses": [{"index": 0, "base_offset": 700}]}]}
        node.faults.add({"scope": {"api": "Produce"}, "when": {"once": True}, "do": {"answer": answer}})
        assert (await client.produce("t", batch("a"))).base_offset == 700
        assert (await client.produce("t", batch("a"))).base_offset == 0

    serve_with_faults_and(story)


def test_an_answer_is_late_lost_cut_or_never_made() -> None:
    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await client.create("t")
        loop = asyncio.get_running_loop()
        node.faults.add({"scope": {"api": "Produce"}, "when": {"once": True}, "do": {"delay_ms": 700}})
        began = loop.time()
        sent = asyncio.ensure_future(client.produce("t", batch("a")))
        await asyncio.sleep(0.1)
        assert await end(other, "t", 0) == 1, "it has its effect at once"
        assert (await sent).error_code == ErrorCode.NONE and loop.time() - began >= 0.7
        for action, has_effect in (("lose_answer", 1), ("cut_answer", 1), ("reset", 0)):
            before = await end(other, "t", 0)
            node.faults.add({"scope": {"api": "Produce"}, "when": {"once": True}, "do": {action: True}})
            with pytest.raises(Closed):
                await client.produce("t", batch("a"))
            assert await end(other, "t", 0) == before + has_effect, action
            client = await node.connect()
        assert (await client.produce("t", batch("a"))).error_code == ErrorCode.NONE

    serve_with_faults_and(story)


def test_a_cut_answer_is_cut_in_the_middle() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.faults.add({"do": {"cut_answer": True}})
        client.send(MetadataRequest(topics=None), 12)
        arrived = await client.reader.read()
        size = int.from_bytes(arrived[:4], "big")
        assert 4 < len(arrived) < size and abs(len(arrived) - size // 2) <= 4

    serve_with_faults_and(story)


def test_an_answer_that_comes_late_is_cut_in_the_middle() -> None:
    """The answers to the requests after it are not sent: the client would take them for its other half."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        node.faults.add({"scope": {"api": "Fetch"}, "do": {"cut_answer": True}})
        client.send(fetch_request([("t", 0, 0)], max_wait_ms=500), 12)
        client.send(MetadataRequest(topics=None), 12)
        arrived = await client.reader.read()
        size = int.from_bytes(arrived[:4], "big")
        assert 4 < len(arrived) < size and abs(len(arrived) - size // 2) <= 4

    serve_with_faults_and(story)


def test_a_request_is_held_until_another_has_come_or_the_fault_ends() -> None:
    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await client.create("t")
        until = {"api": "Heartbeat"}
        node.faults.add({"scope": {"api": "Produce"}, "when": {"once": True}, "do": {"hold": True, "until": until}})
        sent = asyncio.ensure_future(client.produce("t", batch("a")))
        await asyncio.sleep(1)
        assert not sent.done() and await end(other, "t", 0) == 0
        await other.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        assert (await sent).base_offset == 0 and node.faults.in_force == []
        fault = node.faults.add({"scope": {"api": "Produce"}, "do": {"hold": True}})
        sent = asyncio.ensure_future(client.produce("t", batch("a")))
        await asyncio.sleep(1)
        assert not sent.done()
        node.faults.end(fault.id)
        assert (await sent).base_offset == 1

    serve_with_faults_and(story)


def test_a_held_request_of_a_closed_connection_is_dropped() -> None:
    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await client.create("t")
        fault = node.faults.add({"scope": {"api": "Produce"}, "do": {"hold": True}})
        client.send(produce_request("t", batch("a")), 9)
        await asyncio.sleep(1)
        client.close()
        await asyncio.sleep(1)
        node.faults.end(fault.id)
        assert await end(other, "t", 0) == 0

    serve_with_faults_and(story)


def test_the_records_of_a_held_request_stay_those_of_its_client() -> None:
    """They are views of the receive buffer, into which the next bytes of any connection go."""
    faults = Faults({"Produce": ProduceResponse}, lambda: 0)
    appended: list[bytes] = []

    def append(context: object, request: Any) -> None:
        appended.append(bytes(request.topic_data[0].partition_data[0].records))

    buffer = bytearray(batch("a"))
    request = produce_request("t", None)
    request.topic_data[0].partition_data[0].records = memoryview(buffer)
    faults.add({"do": {"hold": True}})
    route, listener = SimpleNamespace(name="Produce"), SimpleNamespace(name="PLAINTEXT")
    context: Any = SimpleNamespace(is_part=False, client_id="test", route=route, listener=listener)
    FaultyRequests(faults, cast("asyncio.AbstractEventLoop", None), lambda _: None).wrap(append)(context, request)
    buffer[:] = batch("b")
    faults.end_all()
    assert appended == [batch("a")]


@pytest.mark.parametrize(
    ("action", "has_effect"),
    [({"delay_ms": 200}, 1), ({"hold": True}, 1), ({"throttle_ms": 10}, 1), ({"answer": {}}, 0)],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_request_without_an_answer_gets_none(action: dict[str, Any], has_effect: int) -> None:
    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await client.create("t")
        node.faults.add({"scope": {"api": "Produce"}, "do": action})
        client.send(produce_request("t", batch("a"), acks=0), 9, is_answered=False)
        assert (await client.ask(MetadataRequest(topics=None), 12)).topics
        await asyncio.sleep(1)
        if "hold" in action:
            assert await end(other, "t", 0) == 0
        node.faults.end_all()
        assert await end(other, "t", 0) == has_effect
        assert (await client.ask(MetadataRequest(topics=None), 12)).topics

    serve_with_faults_and(story)


def test_a_throttle_time_is_told_and_the_connection_is_not_read() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        node.faults.add({"scope": {"api": "Metadata"}, "when": {"once": True}, "do": {"throttle_ms": 900}})
        began = asyncio.get_running_loop().time()
        assert (await client.ask(MetadataRequest(topics=None), 12)).throttle_time_ms == 900
        assert asyncio.get_running_loop().time() - began < 0.5
        assert (await client.ask(MetadataRequest(topics=None), 12)).throttle_time_ms == 0
        assert asyncio.get_running_loop().time() - began >= 0.9

    serve_with_faults_and(story)


def data(index: int) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=batch("a"))


def produced(reply: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.index): each.error_code for topic in reply.responses for each in topic.partition_responses
    }


async def end(client: Client, topic: str, partition: int) -> int:
    """The end of the log."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    offset: int = (await client.ask(request, 7)).topics[0].partitions[0].offset
    return offset
