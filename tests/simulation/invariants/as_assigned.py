"""I11: a broker has the replicas that its own metadata gives to it, no others, each with the settings of its topic. It
expects a replica only while it makes logs, and the replicas that are offline are assigned to it.
"""

from __future__ import annotations

from moldau.broker.metrics.observed import NodeStage
from moldau.kraft.image.configs import ResourceType
from tests.simulation.invariants.observation import Node, Observation, Violation


class AsAssigned:
    def __init__(self) -> None:
        self._looked: dict[int, object] = {}

    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            image = node.broker.image
            if self._looked.get(node.id) is not image:
                self._looked[node.id] = image
                self._check_replicas(node)
                self._check_settings(node)

    @staticmethod
    def _check_replicas(node: Node) -> None:
        topics, replicas = node.broker.image.topics, node.broker.replicas
        is_stopping = node.broker.readiness.stage is NodeStage.STOPPING
        makes_logs = node.broker.partition_work.is_running or is_stopping
        offline_count = 0
        for partition in replicas:
            topic = topics.by_id.get(partition.topic_id)
            assigned = topic.partitions.get(partition.index) if topic is not None else None
            if assigned is None or node.id not in assigned.replicas:
                raise Violation(f"node {node.id} has {partition.topic}-{partition.index}; assigned is {assigned}")
        for topic_id in replicas.by_id:
            if topic_id not in topics.by_id:
                raise Violation(f"node {node.id} knows partitions of {topic_id.hex()}, which is no topic")
        for found, index, assigned in topics.partitions():
            is_expected = replicas.is_expected(found.id, index)
            if is_expected and not makes_logs:
                raise Violation(f"node {node.id} expects {found.name}-{index}, and makes no log")
            if node.id not in assigned.replicas:
                continue
            is_offline = replicas.is_offline(found.id, index)
            offline_count += is_offline
            if replicas.get(found.name, index) is None and not is_offline and not is_expected:
                raise Violation(f"node {node.id} knows nothing of {found.name}-{index}; assigned is {assigned}")
        if offline_count != replicas.offline_count:
            raise Violation(
                f"node {node.id} has {replicas.offline_count} replicas offline, {offline_count} of them its"
            )

    @staticmethod
    def _check_settings(node: Node) -> None:
        broker, image = node.broker, node.broker.image
        for partition in broker.replicas:
            assigned = image.topics.by_id[partition.topic_id].partitions[partition.index]
            config = broker.settings.log_config(image.configs.settings_of(ResourceType.TOPIC, partition.topic))
            if partition.log.config != config:
                raise Violation(f"{partition.topic} on node {node.id} goes by {partition.log.config}, not by {config}")
            needed = min(config.min_insync_replicas, len(assigned.replicas))
            if partition.min_insync_replicas != needed:
                raise Violation(
                    f"{partition.topic}-{partition.index} on node {node.id} wants {partition.min_insync_replicas} in"
                    f" sync, its topic {needed}"
                )
