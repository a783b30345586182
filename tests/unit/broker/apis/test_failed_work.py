"""A bug in the work on a request after its handler: the client hears of it, and the node goes on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.coordinator import submit_event
from moldau.broker.apis.forwarding import ClientsInProcess, StandInConnection
from moldau.broker.apis.records import list_offsets
from moldau.broker.network.route import Route, RouteBinding
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.security.principal import ANONYMOUS
from tests.support.node import Client, Closed, Node, batch, fetch_request, serve_and


class Bug(Exception):
    pass


def fail(*args: object, **kwargs: object) -> Any:
    raise Bug


async def expect_close(client: Client) -> None:
    with pytest.raises(Closed):
        await asyncio.wait_for(client.reply(), 60)


def test_a_fetch_that_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client, other = await node.connect(), await node.connect()
        await other.create("t")
        client.send(fetch_request([("t", 0, 0)], max_wait_ms=30_000), 12)
        while not node.broker.purgatory.sizes.get("Fetch"):
            await asyncio.sleep(0.01)
        planner = node.broker.services.fetch_planner
        object.__setattr__(node.broker.services, "fetch_planner", None)
        await other.produce("t", batch("x"))
        await expect_close(client)
        object.__setattr__(node.broker.services, "fetch_planner", planner)
        assert node.broker.purgatory.sizes["Fetch"] == 0
        assert await other.fetch("t", 0)

    serve_and(story)
    assert "a handler failed" in caplog.text


def test_a_search_of_remote_storage(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        tiered = SimpleNamespace(log=SimpleNamespace(log_start_offset=0, local_start_offset=1), topic="t", index=0)
        here = ListOffsetsPartitionResponse(partition_index=0)
        monkeypatch.setattr(list_offsets, "_answer", lambda request, requested, partition: here)
        object.__setattr__(node.broker.services, "replicas", SimpleNamespace(find=lambda key: tiered))
        object.__setattr__(node.broker.services, "remote_offsets", SimpleNamespace(find=fail))
        asked = ListOffsetsPartition(partition_index=0, timestamp=1, current_leader_epoch=-1)
        client.send(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 7)
        await expect_close(client)

    serve_and(story)
    assert "a handler failed" in caplog.text


def test_a_request_that_came_in_the_process() -> None:
    """Its later slices have no connection to close: the request is answered."""
    told: list[Any] = []
    contexts: list[Any] = []

    async def work() -> None:
        raise Bug

    def handle(context: Any, request: object) -> object:
        contexts.append(context)
        return Pending[object]()

    request = AlterPartitionReassignmentsRequest(topics=[])
    classes = AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    route = Route(45, "AlterPartitionReassignments", 0, 0, lambda: RouteBinding(*classes, handle))
    listener = SimpleNamespace(routes={45: route}, access_of=lambda principal, host: None)
    quorum = SimpleNamespace(serve_clients=lambda service: None)
    client = SimpleNamespace(principal=ANONYMOUS, host="10.0.0.1", client_id="c")
    ClientsInProcess(cast("Any", listener), cast("Any", quorum)).serve(request, 0, cast("Any", client), told.append)
    (context,) = contexts
    assert isinstance(context.connection, StandInConnection)
    asyncio.run(cast("Any", context.connection.hold_during(work())))
    (response,) = told
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_response_that_is_made_of_a_coordinators_answer() -> None:
    class Runner:
        def submit(self, event: Waiter) -> None:
            cast("Any", event.token).complete("answer")

    reply = submit_event(Runner(), 0, lambda waiter: waiter, lambda error: error, fail)
    assert isinstance(reply, Pending) and reply.response is ErrorCode.UNKNOWN_SERVER_ERROR
