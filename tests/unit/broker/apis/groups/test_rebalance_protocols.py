"""Group protocols that `group.coordinator.rebalance.protocols` leaves out are refused, as by Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from moldau.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.support.coordinators import until_coordinated
from tests.support.node import Node, serve_and

REFUSED = ErrorCode.UNSUPPORTED_VERSION
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("protocols", "consumer", "streams"),
    [
        ("classic", REFUSED, REFUSED),
        ("classic,consumer", NOT_FOUND, REFUSED),
        ("streams,classic", REFUSED, NOT_FOUND),
        ("classic,consumer,streams", NOT_FOUND, NOT_FOUND),
    ],
)
def test_a_protocol_that_is_not_listed_is_refused(protocols: str, consumer: ErrorCode, streams: ErrorCode) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await until_coordinated(client.ask, "g")
        for request, expected in (
            (ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), consumer),
            (StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), streams),
            (ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), NOT_FOUND),
        ):
            (group,) = (await client.ask(request, 1 if "share" in type(request).__module__ else 0)).groups
            assert group.error_code == expected, type(request)
        streams_heartbeat = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m" * 22,
            member_epoch=3,
            endpoint_information_epoch=0,
            shutdown_application=False,
        )
        for heartbeat, of_describe in (
            (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m" * 22, member_epoch=3), consumer),
            (streams_heartbeat, streams),
        ):
            answer = await client.ask(heartbeat, 0)
            assert (answer.error_code == REFUSED) == (of_describe == REFUSED), type(heartbeat)

    serve_and(story, group_coordinator_rebalance_protocols=protocols)
