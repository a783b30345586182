"""I1: no node acts in an epoch that a loss of power could take back: whoever leads the quorum has its own vote on the
platter, under the name that the next process reads.
"""

from __future__ import annotations

from moldau.kraft.raft.election_state import QUORUM_STATE, decode_election
from tests.simulation.invariants.observation import Node, Observation, Violation


class QuorumState:
    def __init__(self) -> None:
        self._checked: dict[int, tuple[int, int]] = {}

    def check(self, seen: Observation) -> None:
        for node in seen.nodes:
            quorum = node.broker.quorum
            if quorum.active_controller is not None and self._checked.get(node.id) != (node.life, quorum.leader_epoch):
                self._check(node, quorum.leader_epoch)
                self._checked[node.id] = node.life, quorum.leader_epoch

    @staticmethod
    def _check(node: Node, epoch: int) -> None:
        log_dir = node.broker.config.metadata_log_dir
        data = node.disk.peek_durable(f"{log_dir}/__cluster_metadata-0/{QUORUM_STATE}")
        durable = decode_election(bytes(data)).epoch if data else -1
        if durable < epoch:
            raise Violation(f"node {node.id} leads the quorum in epoch {epoch}; its platter knows epoch {durable}")
