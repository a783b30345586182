"""I11: a leader fetches its partition from nobody; a follower from one at most, the leader that it knows; and what is
not served is not fetched."""

from __future__ import annotations

from tests.simulation.invariants.observation import Observation, Violation


class OneFetcher:
    def check(self, seen: Observation) -> None:
        for _, replica in seen.all_replicas():
            partition = replica.partition
            leaders = replica.broker.fetchers.leaders_of(partition)
            if partition.leadership is not None and leaders:
                raise Violation(f"{replica} leads, and fetches from {leaders}")
            if any(leader != partition.leader_id for leader in leaders) or len(leaders) > 1:
                raise Violation(f"{replica} follows {partition.leader_id}, and fetches from {leaders}")
        for node in seen.nodes:
            for leader_id, fetcher in node.broker.fetchers._fetchers.items():
                for key, followed in fetcher._machine._followed.items():
                    if node.broker.replicas.find(key) is not followed.partition:
                        name = f"{followed.partition.topic}-{followed.partition.index}"
                        raise Violation(f"node {node.id} fetches {name} from {leader_id}, and does not serve it")
