"""What a client asks of a broker that does not lead the quorum reaches the controller as the client said it."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.cluster import Cluster


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_through_any_node_in_every_version(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        for node_id in cluster.nodes:
            topic = f"t{node_id}"
            await cluster.create(topic, replication_factor=3)
            client = await cluster.connect(node_id)
            asked = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
            if version == 6:
                asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=bytes(16))], timeout_ms=1000)
            answer = await client.ask(asked, version)
            assert [(each.name, each.error_code) for each in answer.responses] == [(topic, 0)]

    with Cluster(1) as cluster:
        cluster.live(story)


def create(name: str, timeout_ms: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", [2, 7])
def test_a_message_that_repeats_a_long_name_comes_through_any_node(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        for node_id in cluster.nodes:
            client = await cluster.connect(node_id)
            answer = await client.ask(create("x" * 32_700, 5_000), version)
            assert [each.error_code for each in answer.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_client_without_patience_does_not_disturb_the_requests_of_others() -> None:
    """They share a connection to the controller, with the heartbeats of their broker. If it closes, a request that the
    controller has received is sent again, and the topic exists already."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        for node_id in cluster.nodes:
            patient, hasty = await cluster.connect(node_id), await cluster.connect(node_id)
            answers = []
            for number in range(20):
                patient.send(create(f"patient-{node_id}-{number}", 30_000), 7)
                hasty.send(create(f"hasty-{node_id}-{number}", 1), 7)
                answers.append(await hasty.reply())
                (created,) = (await patient.reply()).topics
                assert created.error_code == ErrorCode.NONE
            seen = {each.error_code for answer in answers for each in answer.topics}
            assert seen <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_client_of_before_upgrade_types_may_lower_a_feature_through_any_node() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        for node_id in cluster.nodes:
            client = await cluster.connect(node_id)
            for level, may_go_down in ((1, False), (0, True)):
                update = FeatureUpdateKey(
                    feature="eligible.leader.replicas.version", max_version_level=level, allow_downgrade=may_go_down
                )
                answer = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 0)
                assert (answer.error_code, len(answer.results)) == (0, 1), answer.error_message

    with Cluster(1) as cluster:
        cluster.live(story)
