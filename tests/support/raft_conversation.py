"""What peers and clients ask and answer in a Raft transcript, made from its commands."""

from __future__ import annotations

from typing import cast

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.raft.events import IncomingResponse, OutgoingRequest, QuorumRequest
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from tests.simulation.raft.replicated_log import Entry
from tests.support.transcripts import Command

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"
LISTENER = "CONTROLLER"


def directory(node_id: int) -> bytes:
    return bytes(15) + bytes([0xA0 + node_id])


def voter(node_id: int) -> VoterNode:
    return VoterNode(node_id, directory(node_id), ((LISTENER, (f"h{node_id}", 9093)),))


def parse_snapshot(text: str) -> SnapshotId:
    end_offset, epoch = map(int, text.split("@"))
    return SnapshotId(end_offset, epoch)


def parse_end(text: str) -> tuple[int, int]:
    epoch, offset = map(int, text.split(":"))
    return epoch, offset


# What peers and clients ask


def vote_asked(command: Command) -> QuorumRequest:
    epoch, offset = parse_end(command.options.get("log", "0:0"))
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=command.int("epoch"),
        replica_id=command.int("from"),
        replica_directory_id=directory(command.int("from")),
        voter_directory_id=directory(command.int("to_directory", 1)),
        last_offset_epoch=epoch,
        last_offset=offset,
        pre_vote="pre" in command.arguments,
    )
    topic = vote.TopicData(topic_name=TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=command.options.get("cluster", "cluster"), voter_id=1, topics=[topic])


def begin_asked(command: Command) -> QuorumRequest:
    leader_id = command.int("leader")
    partition = begin_quorum_epoch.PartitionData(
        partition_index=0,
        voter_directory_id=directory(command.int("to_directory", 1)),
        leader_id=leader_id,
        leader_epoch=command.int("epoch"),
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id="cluster",
        voter_id=1,
        topics=[begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name=LISTENER, host=f"h{leader_id}", port=9093)],
    )


def end_asked(command: Command) -> QuorumRequest:
    leader_id = command.int("leader")
    preferred = [int(each) for each in command.options.get("preferred", "1").split(",")]
    partition = end_quorum_epoch.PartitionData(
        partition_index=0,
        leader_id=leader_id,
        leader_epoch=command.int("epoch"),
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=each, candidate_directory_id=directory(each))
            for each in preferred
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id="cluster",
        topics=[end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])],
        leader_endpoints=[end_quorum_epoch.LeaderEndpoint(name=LISTENER, host=f"h{leader_id}", port=9093)],
    )


def fetch_asked(command: Command) -> QuorumRequest:
    epoch, offset = parse_end(command.options["end"])
    replica_id = command.int("from")
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=command.int("epoch"),
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        partition_max_bytes=1000,
        replica_directory_id=directory(command.int("directory", replica_id)),
        high_watermark=command.int("hw", 1 << 60),
    )
    return fetch.FetchRequest(
        cluster_id="cluster",
        replica_state=fetch.ReplicaState(replica_id=replica_id),
        max_wait_ms=command.int("wait", 500),
        min_bytes=0,
        topics=[fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot_asked(command: Command) -> QuorumRequest:
    snapshot_id = parse_snapshot(command.options["snapshot"])
    partition = fetch_snapshot.PartitionSnapshot(
        partition=0,
        current_leader_epoch=command.int("epoch"),
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        position=command.int("position", 0),
        replica_directory_id=directory(command.int("from")),
    )
    topic = fetch_snapshot.TopicSnapshot(name=TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotRequest(cluster_id="cluster", replica_id=command.int("from"), topics=[topic])


def add_asked(command: Command) -> QuorumRequest:
    node_id = int(command.arguments[0])
    listener = command.options.get("listener", LISTENER)
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=3000,
        voter_id=node_id,
        voter_directory_id=directory(node_id),
        listeners=[add_raft_voter.Listener(name=listener, host=f"h{node_id}", port=9093)],
        ack_when_committed="at_once" not in command.arguments,
    )


def remove_asked(command: Command) -> QuorumRequest:
    node_id = int(command.arguments[0])
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id="cluster", voter_id=node_id, voter_directory_id=directory(command.int("directory", node_id))
    )


def update_asked(command: Command) -> QuorumRequest:
    node_id = int(command.arguments[0])
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id="cluster",
        current_leader_epoch=command.int("epoch"),
        voter_id=node_id,
        voter_directory_id=directory(node_id),
        listeners=[
            update_raft_voter.Listener(name=LISTENER, host=command.options.get("host", f"h{node_id}"), port=9093)
        ],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=command.int("max", 1)
        ),
    )


def describe_asked(_: Command) -> QuorumRequest:
    partition = describe_quorum.PartitionData(partition_index=0)
    return describe_quorum.DescribeQuorumRequest(
        topics=[describe_quorum.TopicData(topic_name=TOPIC, partitions=[partition])]
    )


REQUESTS = {
    "vote": vote_asked,
    "begin": begin_asked,
    "end": end_asked,
    "fetch": fetch_asked,
    "fetch_snapshot": fetch_snapshot_asked,
    "add": add_asked,
    "remove": remove_asked,
    "update": update_asked,
    "describe": describe_asked,
}

# What peers answer


def vote_answered(command: Command, _: OutgoingRequest) -> IncomingResponse:
    if command.options.get("error") == "UNSUPPORTED_VERSION":
        return vote.VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    leader_id = command.int("leader", -1)
    partition = vote.ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode[command.options.get("error", "NONE")],
        leader_id=leader_id,
        leader_epoch=command.int("epoch"),
        vote_granted=command.name == "granted",
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=[vote.NodeEndpoint(node_id=leader_id, host=f"h{leader_id}", port=9093)],
    )


def followed(command: Command, request: OutgoingRequest) -> IncomingResponse:
    module = end_quorum_epoch if isinstance(request, end_quorum_epoch.EndQuorumEpochRequest) else begin_quorum_epoch
    partition = module.ResponsePartitionData(
        partition_index=0, leader_id=command.int("leader", 1), leader_epoch=command.int("epoch")
    )
    topic = module.ResponseTopicData(topic_name=TOPIC, partitions=[partition])
    if module is end_quorum_epoch:
        return end_quorum_epoch.EndQuorumEpochResponse(topics=[topic])
    return begin_quorum_epoch.BeginQuorumEpochResponse(topics=[topic])


def fetched(command: Command, request: OutgoingRequest) -> IncomingResponse:
    leader_id = command.int("leader", command.int("from"))
    epoch = command.int("epoch")
    count = command.int("count", 0)
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode[command.options.get("error", "NONE")],
        high_watermark=command.int("hw", -1),
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        records=cast("bytes", fetched_entries(command, count)),
    )
    if command.name == "diverging":
        end_epoch, end_offset = parse_end(command.options["end"])
        partition.diverging_epoch = fetch.EpochEndOffset(epoch=end_epoch, end_offset=end_offset)
    if command.name == "snapshot":
        snapshot_id = parse_snapshot(command.options["id"])
        partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    endpoint = fetch.NodeEndpoint(node_id=leader_id, host=f"h{leader_id}", port=9093)
    return fetch.FetchResponse(responses=[topic], node_endpoints=[endpoint] if leader_id >= 0 else [])


def fetched_entries(command: Command, count: int) -> list[Entry]:
    entries = [Entry(command.int("record_epoch", command.int("epoch")), None) for _ in range(count)]
    if "voters" in command.options:
        voters = VoterSet.from_voters(voter(int(each)) for each in command.options["voters"].split(","))
        entries[0] = entries[0]._replace(description=QuorumDescription(1, voters))
    return entries


def part_fetched(command: Command, _: OutgoingRequest) -> IncomingResponse:
    snapshot_id = parse_snapshot(command.options["id"])
    leader_id = command.int("from")
    partition = fetch_snapshot.ResponsePartitionSnapshot(
        index=0,
        error_code=ErrorCode[command.options.get("error", "NONE")],
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=command.int("epoch")),
        size=command.int("of", 0),
        position=command.int("position", 0),
        unaligned_records=bytes(command.int("size", 0)),
    )
    topic = fetch_snapshot.ResponseTopicSnapshot(name=TOPIC, partitions=[partition])
    return fetch_snapshot.FetchSnapshotResponse(topics=[topic])


def versions_told(command: Command, _: OutgoingRequest) -> IncomingResponse:
    feature = api_versions.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=command.int("max", 1))
    return api_versions.ApiVersionsResponse(supported_features=[feature])


def changed(command: Command, request: OutgoingRequest) -> IncomingResponse:
    """The response to a change of the voters that the node itself requested."""
    error = ErrorCode[command.options.get("error", "NONE")]
    if isinstance(request, add_raft_voter.AddRaftVoterRequest):
        return add_raft_voter.AddRaftVoterResponse(error_code=error)
    return remove_raft_voter.RemoveRaftVoterResponse(error_code=error)


RESPONSES = {
    "changed": changed,
    "granted": vote_answered,
    "refused": vote_answered,
    "follows": followed,
    "records": fetched,
    "diverging": fetched,
    "snapshot": fetched,
    "part": part_fetched,
    "versions": versions_told,
}
