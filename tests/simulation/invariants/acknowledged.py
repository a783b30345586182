"""P1: what a leader acknowledges under acks=all is committed: below its own high watermark when the answer arrives."""

from __future__ import annotations

from tests.simulation.invariants.observation import Violation
from tests.support.cluster import Cluster
from tests.support.history import Key
from tests.support.node import Client


def check_acknowledged(
    cluster: Cluster, key: Key, last_offset: int, client: Client, what: str = "acknowledged"
) -> None:
    """Of whoever leads at that moment and has the record in its log. A leader that has died says nothing any more, nor
    does one whose replica was moved away: then nothing is said. Nor if it is back meanwhile, before its answer was
    read: a new process begins with the high watermark of its last checkpoint."""
    if not client.is_peer_alive():
        return
    ends = []
    for node in cluster.nodes.values():
        partition = node.broker.replicas.get(*key) if node.is_up and node.broker is not None else None
        if partition is not None:
            ends.append((partition.high_watermark, node.id, partition.is_leader))
    everybody_lives = len(ends) == len(cluster.nodes)
    if everybody_lives and any(leads for _, _, leads in ends) and max(ends)[0] <= last_offset:
        raise Violation(f"{key} was {what} up to {last_offset}; high watermarks are {ends}")
