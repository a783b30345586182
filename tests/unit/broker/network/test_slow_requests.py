"""The log of slow requests on a whole node: its threshold is a dynamic setting, its lines name partitions."""

from __future__ import annotations

import pytest

from moldau.broker.network.slow_requests import named_partitions
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.node import Node, serve_and

BROKER = 4


def test_partitions_are_named_whatever_the_fields_are_called() -> None:
    produce = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=i) for i in range(2)])],
    )
    assert list(named_partitions(produce)) == ["t-0", "t-1"]
    by_id = FetchTopic(
        topic_id=bytes(15) + b"\x07",
        partitions=[FetchPartition(partition=3, fetch_offset=0, partition_max_bytes=1)],
    )
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[by_id])
    assert list(named_partitions(fetch)) == ["00000000000000000000000000000007-3"]
    assert list(named_partitions(MetadataRequest(topics=[MetadataRequestTopic(name="m")]))) == ["m"]
    assert list(named_partitions(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))) == []


def test_the_threshold_is_changed_while_the_node_serves(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect(client_id="an admin")
        await client.create("t")
        assert [each for each in caplog.messages if each.startswith("slow_request")] == []
        config = AlterableConfig(name="moldau.slow.request.ms", config_operation=0, value="0")
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert (await client.ask(request, 1)).responses[0].error_code == 0
        await client.create("u")
        (line,) = [each for each in caplog.messages if each.startswith("slow_request api=CreateTopics")]
        assert " waits_for=controller " in line and ' client_id="an admin" ' in line and line.endswith(" partitions=u")

    serve_and(story)
