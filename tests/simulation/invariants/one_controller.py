"""I1: at most one controller is active in an epoch."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class OneController:
    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            if node.broker.quorum.active_controller is not None:
                epoch = node.broker.quorum.leader_epoch
                if self._leaders.setdefault(epoch, node.id) != node.id:
                    raise Violation(f"nodes {self._leaders[epoch]} and {node.id} are controllers in epoch {epoch}")
