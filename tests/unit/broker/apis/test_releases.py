"""Earlier releases of Apache Kafka, as a node offers them to clients."""

from __future__ import annotations

from itertools import pairwise

import pytest
from confluent_kafka import Producer

from moldau.broker.apis.releases import CHANGES, features_of, sort_key, versions_of
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.testing import Cluster
from tests.support.node import Closed, Node, serve_and


def asked() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.mark.parametrize("release", CHANGES)
def test_a_node_offers_the_versions_and_features_of_a_release(release: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        answer = await client.ask(asked(), 3)
        offered = {each.api_key: each.max_version for each in answer.api_keys}
        versions = versions_of(release)
        assert offered.keys() <= versions.keys()
        assert all(last <= versions[key] for key, last in offered.items())
        assert {0, 1, 3, 10, 11, 18} <= offered.keys()
        names = {each.name for each in answer.finalized_features} | {each.name for each in answer.supported_features}
        assert names <= features_of(release)

    serve_and(story, moldau_emulated_release=release)


def test_what_the_release_lacks_ends_the_connection() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert (await client.ask(MetadataRequest(topics=None), 11)).brokers
        with pytest.raises(Closed):
            await client.ask(MetadataRequest(topics=None), 12)

    serve_and(story, moldau_emulated_release="2.8")


def test_a_later_release_offers_what_an_earlier_one_does() -> None:
    releases = sorted(CHANGES, key=sort_key)
    assert releases == list(CHANGES)
    for earlier, later in pairwise(releases):
        first, second = versions_of(earlier), versions_of(later)
        assert all(second[key] >= last for key, last in first.items())
        assert features_of(earlier) <= features_of(later)


@pytest.mark.processes
@pytest.mark.parametrize("release", ["2.8", "3.9"])
def test_a_client_produces_to_an_earlier_release(release: str) -> None:
    with Cluster(max_version=release) as kafka:
        kafka.create_topic("t")
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "x"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.commit_transaction()
        assert [each.value for each in kafka.records("t")] == [b"x"]


def test_several_nodes_do_not_emulate() -> None:
    with pytest.raises(ValueError, match="max_version is for one node"):
        Cluster(3, max_version="2.8")
