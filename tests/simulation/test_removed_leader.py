"""The leader of the quorum is removed from it: its term ends with what it commits last."""

from __future__ import annotations

import asyncio

from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.support.cluster import CLUSTER_ID, Cluster, voter_of
from tests.support.failed_handlers import failed_handlers


def test_who_asks_on_seeing_the_last_commit_is_answered_by_the_next_leader() -> None:
    """One fetch of a voter that was away commits the removal, and a record before it."""
    complaints: list[str] = []
    answers: list[int] = []
    seen_by: list[bool] = []

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.broker is not None
        quorum, epoch = leader.broker.quorum, leader.broker.registration.epoch
        request = AllocateProducerIdsRequest(broker_id=leader.id, broker_epoch=epoch)

        def heard(response: AllocateProducerIdsResponse) -> None:
            answers.append(response.error_code)

        def seen(*_: object) -> None:
            seen_by.append(quorum.opened.raft.is_leader)
            quorum.submit(request, heard)

        slow = next(node for node in cluster.nodes.values() if node is not leader)
        slow.kill()
        quorum.submit(request, heard)
        quorum.subscribe(seen)
        voter = voter_of(leader.id)
        quorum.receive(
            RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=voter.id, voter_directory_id=voter.directory_id),
            0,
            "CONTROLLER",
        )
        await asyncio.sleep(0.2)
        assert not seen_by, "nothing is committed without the one that is away"
        slow.boot()
        await cluster.until(lambda: len(answers) > 1, "two answers")
        assert not seen_by[0] and not any(answers)
        assert cluster.leader_of_quorum() is not leader

    with Cluster(1, voters=3) as cluster, failed_handlers(complaints):
        cluster.live(story)
    assert not complaints
