"""I14: a broker coordinates the groups of a partition of `__consumer_offsets` while it leads that partition."""

from __future__ import annotations

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from tests.simulation.invariants.observation import Observation, Violation


class OneCoordinator:
    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            for index in node.broker.coordinators.groups._runners:
                partition = node.broker.replicas.get(GROUP_METADATA_TOPIC, index)
                if partition is None or not partition.is_leader:
                    raise Violation(f"node {node.id} coordinates {GROUP_METADATA_TOPIC}-{index} and does not lead it")
