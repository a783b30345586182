"""What version 1 of the APIs of streams groups adds (KIP-1331); the same requests were sent to Apache Kafka 4.4.0.

There a member is told an interval (60 s) and a lag (10,000) for warm-up tasks; here there are none.
"""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import streams_group_describe as describing
from moldau.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from moldau.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from tests.support.coordinators import until_coordinated
from tests.support.node import Client, Node, serve_and

GROUP, MEMBER = "g", "m" * 22


async def joined(client: Client, version: int) -> StreamsGroupHeartbeatResponse:
    await client.create("in", partitions=2)
    await until_coordinated(client.ask, GROUP)
    topology = Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=["in"])])
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=MEMBER,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=1_000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
        shutdown_application=False,
    )
    while (answer := await client.ask(request, version)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0.1)
    assert isinstance(answer, StreamsGroupHeartbeatResponse) and answer.error_code == ErrorCode.NONE
    return answer


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_is_asked_for_no_description_and_told_of_no_warm_up_tasks(version: int) -> None:
    async def story(node: Node) -> None:
        answer = await joined(await node.connect(), version)
        assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 500)  # The initial delay is not over.
        assert (answer.acceptable_recovery_lag, answer.acceptable_recovery_lag_legacy) == (-1, 0)
        assert not answer.topology_description_required

    serve_and(story)


@pytest.mark.parametrize(
    ("version", "asks", "told"), [(0, True, (0, None)), (1, False, (0, "sticky")), (1, True, (1, "sticky"))]
)
def test_a_described_group_names_its_assignor_and_no_description(
    version: int, asks: bool, told: tuple[int, str | None]
) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await joined(client, version)
        request = describing.StreamsGroupDescribeRequest(
            group_ids=[GROUP, "absent"], include_authorized_operations=False, include_topology_description=asks
        )
        found, absent = (await client.ask(request, version)).groups
        assert found.error_code == ErrorCode.NONE and found.topology_description is None
        assert (found.topology_description_status, found.assignor_name) == told
        assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (absent.topology_description_status, absent.assignor_name) == (0, None)

    serve_and(story)


@pytest.mark.parametrize(("group_id", "member_id"), [(GROUP, MEMBER), (GROUP, ""), ("", "x"), ("absent", "x")])
def test_no_plugin_stores_descriptions_of_topologies(group_id: str, member_id: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await joined(client, 1)
        nodes = [describing.TopologyDescriptionNode(name="s", node_type=1, source_topics=["in"])]
        description = describing.TopologyDescription(
            subtopologies=[describing.TopologyDescriptionSubtopology(subtopology_id="0", nodes=nodes)]
        )
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group_id, member_id=member_id, topology_epoch=0, topology_description=description
        )
        answer = await client.ask(request, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.error_message == "The broker has no streams group topology description plugin configured."

    serve_and(story)
