"""What a client asks of a broker that does not lead the quorum reaches the controller as the client said it."""

from __future__ import annotations

import pytest

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
