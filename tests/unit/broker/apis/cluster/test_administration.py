"""What administrators and tools ask of a cluster of one: nodes, quorum, settings, producer ids, telemetry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.broker.apis.cluster.api_versions import SOFTWARE_LENGTH_MAX
from moldau.broker.apis.needs import CLUSTER_OPERATIONS, NOT_ASKED
from moldau.broker.network.route import ListenerRole
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from moldau.protocol.messages.alter_configs import AlterConfigsRequest
from moldau.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.push_telemetry import PushTelemetryRequest
from moldau.protocol.primitives import Chunk
from tests.support.apis import APIS
from tests.support.node import CONTROLLER_PORT, HOST, PORT, Client, Node, serve_and

SET, DELETE = 0, 1
TOPIC, BROKER, CLIENT_METRICS, GROUP = ResourceType
BROKER_LOGGER = 8


def test_api_versions_show_what_is_advertised_behind_each_listener() -> None:
    async def story(node: Node) -> None:
        for port, role in ((PORT, ListenerRole.BROKER), (CONTROLLER_PORT, ListenerRole.CONTROLLER)):
            client = await node.connect(port)
            for version in range(6):
                request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
                reply = await client.ask(request, version)
                shown = {key.api_key: (key.min_version, key.max_version) for key in reply.api_keys}
                expected = {
                    api.key: (api.first, api.last)
                    for api in APIS
                    if api.listeners.role & role and api.listeners.is_advertised
                }
                if role is ListenerRole.BROKER:
                    expected[0] = (0, expected[0][1])  # librdkafka looks for version 0 of Produce
                assert shown == expected and 71 not in shown and 72 not in shown

    serve_and(story)


@pytest.mark.parametrize("name", ["", "-x", "x y", "ä"])
def test_a_client_that_names_its_software_wrongly_is_refused(name: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        assert (await client.ask(request, 3)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.ask(request, 2)).error_code == 0

    serve_and(story)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "of_broker", "of_controller"),
    [
        (None, -1, ErrorCode.NONE, ErrorCode.NONE),
        ("simulated-cluster-0000", 1, ErrorCode.NONE, ErrorCode.NONE),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("simulated-cluster-0000", 2, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("simulated-cluster-0000", -2, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.NONE),
        ("simulated-cluster-0000", -1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_another_broker_has_to_bootstrap_again(
    cluster_id: str | None, node_id: int, of_broker: ErrorCode, of_controller: ErrorCode
) -> None:
    """As Apache Kafka 4.4.0 answered."""

    async def story(node: Node) -> None:
        for port, error in ((PORT, of_broker), (CONTROLLER_PORT, of_controller)):
            client = await node.connect(port)
            reply = await client.ask(
                ApiVersionsRequest(
                    client_software_name="test",
                    client_software_version="1.0",
                    cluster_id=cluster_id,
                    node_id=node_id,
                ),
                5,
            )
            assert reply.error_code == error
            assert bool(reply.api_keys) == (error is ErrorCode.NONE)

    serve_and(story)


def test_the_answer_to_all_is_encoded_once_and_follows_the_metadata() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        (listener,) = (each for each in node.broker.listeners if each.name == "PLAINTEXT")
        route, told = listener.routes[18], node.broker.services.told_versions

        def answers() -> dict[tuple[str, bool], object]:
            return {asked: response for asked, (_, response) in told.items()}

        for version in (3, 4, 5, 3):
            await client.ask(request, version)
        assert answers().keys() == {("PLAINTEXT", False), ("PLAINTEXT", True)}
        pieces: list[list[Chunk]] = [[], []]
        for each in pieces:
            route.encoders[5](answers()["PLAINTEXT", True], each)
        assert pieces[0][0] is pieces[1][0]
        before = answers()
        await client.create("a")
        reply = await client.ask(request, 5)
        assert reply.finalized_features_epoch == node.broker.image.provenance.end_offset - 1
        assert answers()["PLAINTEXT", True] is not before["PLAINTEXT", True]

    serve_and(story)


def test_of_the_name_of_its_software_as_much_is_kept_as_a_name_needs() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        request = ApiVersionsRequest(client_software_name="a" * 30_000, client_software_version="1" * 30_000)
        assert (await client.ask(request, 3)).error_code == 0
        (listener,) = (each for each in node.broker.listeners if each.name == "PLAINTEXT")
        (connection,) = listener.connections
        assert connection.software == ("a" * SOFTWARE_LENGTH_MAX, "1" * SOFTWARE_LENGTH_MAX)

    serve_and(story)


def test_a_cluster_is_described_as_brokers_or_as_controllers() -> None:
    async def story(node: Node) -> None:
        for port, own in ((PORT, 1), (CONTROLLER_PORT, 2)):
            client = await node.connect(port)
            for asked in (1, 2, 7):
                request = DescribeClusterRequest(include_cluster_authorized_operations=asked == 1, endpoint_type=asked)
                reply = await client.ask(request, 2)
                if asked == own:
                    assert (reply.error_code, reply.endpoint_type, reply.controller_id) == (0, own, 1)
                    assert reply.cluster_id == "simulated-cluster-0000"
                    assert [(each.broker_id, each.port) for each in reply.brokers] == [(1, port)]
                    assert reply.cluster_authorized_operations == (CLUSTER_OPERATIONS if asked == 1 else NOT_ASKED)
                else:
                    wrong = ErrorCode.MISMATCHED_ENDPOINT_TYPE if asked < 3 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
                    assert (reply.error_code, reply.endpoint_type, reply.brokers) == (wrong, 1, [])

    serve_and(story)


@pytest.mark.parametrize("port", [PORT, CONTROLLER_PORT])
def test_the_quorum_is_described_where_nothing_else_is_asked_for(port: int) -> None:
    async def story(node: Node) -> None:
        await node.connect()  # brokers are served last: the quorum is there by then
        client = await node.connect(port)

        async def ask(version: int, *wanted: tuple[str, int]) -> Any:
            topics = [TopicData(topic_name=name, partitions=[PartitionData(partition_index=i)]) for name, i in wanted]
            return await client.ask(DescribeQuorumRequest(topics=topics), version)

        for version in range(3):
            reply = await ask(version, ("__cluster_metadata", 0))
            (partition,) = reply.topics[0].partitions
            assert (reply.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
            (voter,) = partition.current_voters
            assert voter.replica_id == 1 and voter.log_end_offset == partition.high_watermark > 0
            assert [each.node_id for each in reply.nodes] == ([1] if version == 2 else [])
        for wanted in ([("x", 0)], [("__cluster_metadata", 1)], [("__cluster_metadata", 0), ("x", 0)]):
            reply = await ask(2, *wanted)
            assert (reply.error_code, reply.nodes) == (0, [])
            assert {each.error_code for topic in reply.topics for each in topic.partitions} == {3}

    serve_and(story)


async def describe(
    client: Client, resource_type: int, name: str, *keys: str, **fields: bool
) -> tuple[int, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    reply = await client.ask(DescribeConfigsRequest(resources=[resource], **fields), 4)
    (result,) = reply.results
    return result.error_code, {each.name: each for each in result.configs}


def test_the_settings_of_a_broker_are_described_in_slices() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        long_requests = node.broker.services.long_requests
        before = long_requests.handled_count
        error, described = await describe(client, BROKER, "1")
        assert error == 0 and described["log.dirs"].value == "/data" and len(described) > 300
        assert long_requests.handled_count == before + 1
        assert [*(await describe(client, TOPIC, "none"))] == [3, {}]
        assert long_requests.handled_count == before + 1

    serve_and(story)


async def change(client: Client, resource_type: int, resource: str, *changes: tuple[str, int, str | None]) -> int:
    configs = [
        AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
    ]
    resources = [AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=configs)]
    reply = await client.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)
    await asyncio.sleep(0.1)
    error: int = reply.responses[0].error_code
    return error


def test_a_topics_setting_is_in_force_as_soon_as_it_is_described() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        log = node.broker.replicas.by_name["t"][0].log
        assert await change(client, TOPIC, "t", ("retention.ms", SET, "1234"), ("min.insync.replicas", SET, "3")) == 0
        _, described = await describe(client, TOPIC, "t", "retention.ms", include_synonyms=True)
        entry = described["retention.ms"]
        assert (entry.value, entry.config_source, entry.documentation) == ("1234", 1, None)
        assert [each.value for each in entry.synonyms] == ["1234"]
        assert log.config.retention_ms == 1234
        assert node.broker.replicas.by_name["t"][0].min_insync_replicas == 1, "never more than there are replicas"
        configs = [ReplacedConfig(name="segment.ms", value="5678")]
        resources = [ReplacedResource(resource_type=TOPIC, resource_name="t", configs=configs)]
        await client.ask(AlterConfigsRequest(resources=resources, validate_only=False), 2)
        await asyncio.sleep(0.1)
        assert (log.config.retention_ms, log.config.segment_ms) == (7 * 24 * 3600 * 1000, 5678)

    serve_and(story)


def test_a_brokers_setting_reaches_every_log_that_has_none_of_its_own() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.create("own", retention_ms=5)
        for resource, value in (("", "111111"), ("1", "222222")):
            assert await change(client, BROKER, resource, ("log.retention.ms", SET, value)) == 0
            assert node.broker.replicas.by_name["t"][0].log.config.retention_ms == int(value)
        assert node.broker.replicas.by_name["own"][0].log.config.retention_ms == 5
        assert await change(client, BROKER, "1", ("log.retention.ms", DELETE, None)) == 0
        _, described = await describe(client, TOPIC, "t", "retention.ms")
        assert described["retention.ms"].value == "111111"
        assert node.broker.replicas.by_name["t"][0].log.config.retention_ms == 111111

    serve_and(story)


def test_a_controller_takes_settings_for_registered_nodes_and_a_broker_for_itself() -> None:
    async def story(node: Node) -> None:
        broker, controller = await node.connect(), await node.connect(CONTROLLER_PORT)
        for name, from_broker, from_controller in (
            ("1", 0, 0),
            ("", 0, 0),
            ("7", ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ):
            for client, error in ((broker, from_broker), (controller, from_controller)):
                assert await change(client, BROKER, name, ("log.retention.ms", SET, "111111")) == error

    serve_and(story)


def test_settings_of_groups_and_of_client_metrics() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert await change(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
        assert (await describe(client, GROUP, "g", "consumer.session.timeout.ms"))[1][
            "consumer.session.timeout.ms"
        ].value == "50000"
        assert await change(client, CLIENT_METRICS, "m", ("interval.ms", SET, "5000")) == 0
        assert (await describe(client, CLIENT_METRICS, "m"))[1]["interval.ms"].value == "5000"
        reply = await client.ask(ListConfigResourcesRequest(resource_types=[GROUP, CLIENT_METRICS, GROUP]), 1)
        assert [(each.resource_type, each.resource_name) for each in reply.config_resources] == [
            (GROUP, "g"),
            (CLIENT_METRICS, "m"),
        ]
        reply = await client.ask(ListConfigResourcesRequest(), 0)
        assert [each.resource_name for each in reply.config_resources] == ["m"]
        reply = await client.ask(ListConfigResourcesRequest(resource_types=[9]), 1)
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        reply = await client.ask(ListConfigResourcesRequest(), 1)
        assert {each.resource_type for each in reply.config_resources} == {BROKER, BROKER_LOGGER, GROUP, CLIENT_METRICS}

    serve_and(story)


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (9, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_cannot_be_described(resource_type: int, name: str, error: int) -> None:
    async def story(node: Node) -> None:
        assert await describe(await node.connect(), resource_type, name) == (error, {})

    serve_and(story)


def test_a_brokers_settings_are_all_described_and_only_those_asked_for() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        error, everything = await describe(client, BROKER, "1", include_documentation=True)
        assert error == 0 and {"node.id", "log.dirs", "log.retention.ms"} <= set(everything)
        assert everything["node.id"].read_only and everything["node.id"].documentation
        assert list((await describe(client, BROKER, "1", "node.id", "nope"))[1]) == ["node.id"]
        error, of_all = await describe(client, BROKER, "")
        assert error == 0 and list(of_all) == ["min.insync.replicas"]  # with eligible leader replicas it is written
        assert len((await describe(client, BROKER_LOGGER, "1"))[1]) > 5

    serve_and(story)


async def producer_id(client: Client, **fields: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 1000, **fields})
    reply = await client.ask(request, 5)
    return reply.error_code, reply.producer_id, reply.producer_epoch


def test_producer_ids_are_never_given_twice_over_blocks_and_restarts() -> None:
    async def story(node: Node) -> None:
        given: list[int] = []
        for _ in range(3):
            client = await node.connect()
            for _ in range(8):
                for _ in range(150):
                    client.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 5)
                for _ in range(150):
                    reply = await client.reply()
                    assert (reply.error_code, reply.producer_epoch) == (0, 0)
                    given.append(reply.producer_id)
            node.host.crash()
            node.boot()
        assert len(set(given)) == len(given) == 3600

    serve_and(story)


def test_producer_ids_that_are_refused() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert await producer_id(client, producer_id=7, producer_epoch=3) == (0, 0, 0)
        refused = (ErrorCode.INVALID_REQUEST, -1, -1)
        assert await producer_id(client, producer_id=7) == refused
        assert await producer_id(client, producer_epoch=7) == refused
        assert await producer_id(client, transactional_id="") == refused
        error, *_ = await producer_id(client, transactional_id="x")
        assert error == ErrorCode.NOT_COORDINATOR

    serve_and(story)


def test_telemetry_subscriptions_are_told_to_whom_they_mean_and_pushes_are_dropped() -> None:
    async def story(node: Node) -> None:
        client = await node.connect(client_id="mine")
        me = bytes(range(16))
        reply = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)
        assert reply.client_instance_id != bytes(16)
        assert (reply.push_interval_ms, reply.requested_metrics, reply.telemetry_max_bytes) == (300_000, [], 1 << 20)
        assert (list(reply.accepted_compression_types), reply.delta_temporality) == ([4, 3, 1, 2], True)
        await change(client, CLIENT_METRICS, "all", ("metrics", SET, "a.,b."), ("interval.ms", SET, "60000"))
        await change(
            client,
            CLIENT_METRICS,
            "mine",
            ("metrics", SET, "b.,c."),
            ("interval.ms", SET, "50000"),
            ("match", SET, "client_id=mi.*,client_source_address=10\\.0\\.0\\..*"),
        )
        await change(client, CLIENT_METRICS, "others", ("metrics", SET, "d."), ("match", SET, "client_id=other"))
        reply = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=me), 0)
        assert (reply.push_interval_ms, reply.requested_metrics) == (50_000, ["a.", "b.", "c."])

        async def push(instance: bytes = me, subscription: int = reply.subscription_id, **fields: Any) -> int:
            given = {"terminating": False, "compression_type": 0, "metrics": b"", **fields}
            request = PushTelemetryRequest(client_instance_id=instance, subscription_id=subscription, **given)
            error: int = (await client.ask(request, 0)).error_code
            return error

        assert await push() == 0
        assert await push(metrics=bytes(1 << 20)) == 0
        assert await push(metrics=bytes((1 << 20) + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
        assert await push(compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert await push(instance=bytes(16)) == ErrorCode.INVALID_REQUEST
        assert await push(subscription=reply.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        await change(client, CLIENT_METRICS, "all", ("metrics", SET, "*"))
        assert await push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "what was subscribed to has changed"
        reply = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=me), 0)
        assert reply.requested_metrics == ["*"]

    serve_and(story)


def test_the_broker_is_told_by_its_advertised_name() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        reply = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        assert [(each.host, each.port) for each in reply.brokers] == [(HOST, PORT)]

    serve_and(story)
