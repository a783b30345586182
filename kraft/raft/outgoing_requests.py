"""The requests that this node sends to other members of the quorum. Each is about the metadata partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.kraft.features import KRAFT_VERSION, SUPPORTED_FEATURES
from moldau.kraft.quorum.voter_set import Address, ReplicaKey, VoterNode
from moldau.kraft.raft.member import METADATA_TOPIC, METADATA_TOPIC_ID, DurableEnd, QuorumMember
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.messages import add_raft_voter, fetch, fetch_snapshot, remove_raft_voter, update_raft_voter, vote
from moldau.protocol.messages import begin_quorum_epoch as begin
from moldau.protocol.messages import end_quorum_epoch as end


def vote_request(member: QuorumMember, voter: VoterNode, *, is_pre_vote: bool) -> vote.VoteRequest:
    """Make a Vote request. A vote is for the epoch of this node; a pre-vote is for the epoch after it (KIP-996)."""
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=member.epoch,
        replica_id=member.node_id,
        replica_directory_id=member.identity.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=member.log.last_epoch,
        last_offset=member.log.end_offset,
        pre_vote=is_pre_vote,
    )
    topic = vote.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=member.identity.cluster_id, voter_id=voter.id, topics=[topic])


def begin_request(member: QuorumMember, voter: VoterNode) -> begin.BeginQuorumEpochRequest:
    partition = begin.PartitionData(
        partition_index=0,
        voter_directory_id=voter.directory_id,
        leader_id=member.node_id,
        leader_epoch=member.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=member.identity.cluster_id,
        voter_id=voter.id,
        topics=[begin.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            begin.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in own_endpoints(member)
        ],
    )


def end_request(member: QuorumMember, preferred: Sequence[ReplicaKey]) -> end.EndQuorumEpochRequest:
    partition = end.PartitionData(
        partition_index=0,
        leader_id=member.node_id,
        leader_epoch=member.epoch,
        preferred_successors=[key.id for key in preferred],
        preferred_candidates=[
            end.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id) for key in preferred
        ],
    )
    return end.EndQuorumEpochRequest(
        cluster_id=member.identity.cluster_id,
        topics=[end.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            end.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in own_endpoints(member)
        ],
    )


def fetch_request(member: QuorumMember, end: DurableEnd) -> fetch.FetchRequest:
    """Make a Fetch request from the end of this node's log.

    The leader takes the offset to mean that every record before it is durable on this node.
    """
    settings = member.settings
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=member.epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        log_start_offset=member.log.start_offset,
        partition_max_bytes=settings.fetch_size_max,
        replica_directory_id=member.identity.directory_id,
        high_watermark=member.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=member.identity.cluster_id,
        replica_id=member.node_id,
        replica_state=fetch.ReplicaState(replica_id=member.node_id),
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=0,
        max_bytes=settings.fetch_size_max,
        topics=[fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot_request(
    member: QuorumMember, snapshot_id: SnapshotId, position: int
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.PartitionSnapshot(
        partition=0,
        current_leader_epoch=member.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=position,
        replica_directory_id=member.identity.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=member.identity.cluster_id,
        replica_id=member.node_id,
        max_bytes=member.settings.snapshot_fetch_size_max,
        topics=[fetch_snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def update_voter_request(member: QuorumMember) -> update_raft_voter.UpdateRaftVoterRequest:
    supported = SUPPORTED_FEATURES[KRAFT_VERSION]
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=member.identity.cluster_id,
        current_leader_epoch=member.epoch,
        voter_id=member.node_id,
        voter_directory_id=member.identity.directory_id,
        listeners=[
            update_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in own_endpoints(member)
        ],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=supported.first, max_supported_version=supported.last
        ),
    )


def add_voter_request(member: QuorumMember) -> add_raft_voter.AddRaftVoterRequest:
    """Make an AddRaftVoter request for this node itself.

    The leader responds when the record is written, not when it is committed, because this node may have to fetch the
    record before it can be committed.
    """
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=member.identity.cluster_id,
        timeout_ms=member.settings.request_timeout_ms,
        voter_id=member.node_id,
        voter_directory_id=member.identity.directory_id,
        listeners=[
            add_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in own_endpoints(member)
        ],
        ack_when_committed=False,
    )


def remove_voter_request(member: QuorumMember, voter: VoterNode) -> remove_raft_voter.RemoveRaftVoterRequest:
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=member.identity.cluster_id, voter_id=voter.id, voter_directory_id=voter.directory_id
    )


def own_endpoints(member: QuorumMember) -> list[tuple[str, str, int]]:
    return endpoint_list(member.identity.endpoints)


def endpoint_list(endpoints: Mapping[str, Address]) -> list[tuple[str, str, int]]:
    return [(name, host, port) for name, (host, port) in endpoints.items()]
