"""AssignReplicasToDirs: a broker reports in which log directory it put each of its replicas (KIP-858)."""

from __future__ import annotations

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.partitions.leadership import election_of, rules_of
from moldau.kraft.controller.partitions.partition_change import RequestedChange, change_of
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.cluster import LOST_DIRECTORY, Broker
from moldau.kraft.image.topics import PartitionRegistration
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    DirectoryResult,
    PartitionResult,
    TopicResult,
)
from moldau.protocol.records.metadata import PartitionChangeRecord


def assign_replicas(context: DecisionContext, request: AssignReplicasToDirsRequest) -> Decision:
    view = context.view
    broker = view.image.cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return refused(ErrorCode.STALE_BROKER_EPOCH)
    records: list[object] = []
    results = [assign_in_directory(view, broker, directory, records) for directory in request.directories]
    return Decision(records, AssignReplicasToDirsResponse(directories=results))


def refused(error: ErrorCode) -> Decision:
    return Decision((), AssignReplicasToDirsResponse(error_code=error))


def assign_in_directory(
    view: ControllerView, broker: Broker, directory: DirectoryData, records: list[object]
) -> DirectoryResult:
    result = DirectoryResult(id=directory.id)
    for topic in directory.topics:
        answers = []
        for data in topic.partitions:
            assigned = assign_replica_directory(view, broker, directory.id, topic.topic_id, data.partition_index)
            error = assigned if isinstance(assigned, ErrorCode) else ErrorCode.NONE
            if isinstance(assigned, PartitionChangeRecord):
                records.append(assigned)
            answers.append(PartitionResult(partition_index=data.partition_index, error_code=error))
        result.topics.append(TopicResult(topic_id=topic.topic_id, partitions=answers))
    return result


def assign_replica_directory(
    view: ControllerView, broker: Broker, directory_id: bytes, topic_id: bytes, index: int
) -> PartitionChangeRecord | ErrorCode:
    """The record that assigns a replica to a log directory, or an error code. The code is NONE if the metadata has that
    directory already.

    A replica in an offline directory loses the leadership; a replica in an online directory may be elected.
    """
    topic = view.image.topics.by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.directory_of(broker.id) == directory_id:
        return ErrorCode.NONE
    wanted = RequestedChange(election=election_of(view, topic), directories={broker.id: directory_id})
    if not broker.has_online_directory(directory_id):
        wanted = without_offline_replica(wanted, partition, broker.id, directory_id)
    directories = [
        directory_id if replica == broker.id else partition.directory_of(replica) for replica in partition.replicas
    ]
    moved = partition._replace(directories=tuple(directories))
    record = change_of(topic_id, index, partition, wanted, rules_of(view, topic, view.eligibility_of(moved)))
    return ErrorCode.NONE if record is None else record


def without_offline_replica(
    wanted: RequestedChange, partition: PartitionRegistration, broker_id: int, directory_id: bytes
) -> RequestedChange:
    """The change `wanted`, with the broker's replica in the offline directory `directory_id` removed from the in-sync
    set.

    If the directory is LOST, the replica is not an eligible leader replica either, because the broker will fetch it
    again from the log start. The last in-sync replica stays in sync, or becomes an eligible leader replica if the
    cluster has these, because no other replica has its records.
    """
    isr = [replica for replica in partition.isr if replica != broker_id]
    is_damaged = directory_id == LOST_DIRECTORY and bool(isr)
    return wanted._replace(isr=isr, lost=(broker_id,) if is_damaged else ())
