"""AlterPartition: the leader of a partition proposes an in-sync set, and the controller accepts or refuses it.

The leader epoch and the partition epoch of the request must be those of the controller's metadata. If they are not, the
leader or the controller lacks a change: the leader waits for newer metadata, or sends the request again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.partitions.leadership import election_of, rules_of
from moldau.kraft.controller.partitions.partition_change import RECOVERED, RECOVERING, RequestedChange, change_of
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import LEADER_UNCHANGED, NO_LEADER, PartitionRegistration, Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicResult,
)

ANY_EPOCH: Final = -1
"""The broker epoch of a follower in an AlterPartition request whose sender does not know the epoch. Leaders before
Kafka 3.5 know none.
"""


def alter_partition(context: DecisionContext, request: AlterPartitionRequest) -> Decision:
    view = context.view
    image = view.image
    broker = image.cluster.brokers.get(request.broker_id)
    if not request.topics:
        return Decision((), AlterPartitionResponse())  # as Apache Kafka does, whichever broker asks
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision((), AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[object] = []
    topics = []
    for asked in request.topics:
        topic = image.topics.by_id.get(asked.topic_id)
        answers = []
        for data in asked.partitions:
            partition = topic.partitions.get(data.partition_index) if topic is not None else None
            if topic is None:
                answers.append(refused(data, ErrorCode.UNKNOWN_TOPIC_ID))
            elif partition is None:
                answers.append(refused(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                answers.append(alter_in_sync_set(view, broker.id, topic, partition, data, records))
        topics.append(TopicResult(topic_id=asked.topic_id, partitions=answers))
    return Decision.in_slices(records, AlterPartitionResponse(topics=topics))


def alter_in_sync_set(
    view: ControllerView,
    broker_id: int,
    topic: Topic,
    partition: PartitionRegistration,
    data: PartitionData,
    records: list[object],
) -> PartitionResult:
    """Decide on the in-sync set that is proposed for one partition, and append the record of an accepted change to
    `records`. The change may complete a reassignment and make another replica the leader; then the result is
    NEW_LEADER_ELECTED."""
    members = members_of(data)
    refusal = refusal_of(view.image, broker_id, partition, data, members)
    if refusal is not ErrorCode.NONE:
        return refused(data, refusal)
    wanted = RequestedChange(
        isr=[each.broker_id for each in members],
        recovery_state=data.leader_recovery_state,
        election=election_of(view, topic),
    )
    rules = rules_of(view, topic, view.eligibility_of(partition))
    record = change_of(topic.id, data.partition_index, partition, wanted, rules)
    if record is not None:
        records.append(record)
        partition = partition.with_change(record)
        if record.leader not in (broker_id, LEADER_UNCHANGED, NO_LEADER):
            return refused(data, ErrorCode.NEW_LEADER_ELECTED)
    return PartitionResult(
        partition_index=data.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def members_of(data: PartitionData) -> Sequence[BrokerState]:
    """The members of the proposed in-sync set. Before version 3 of the request their broker epochs are not known."""
    return data.new_isr_with_epochs or [BrokerState(broker_id=each) for each in data.new_isr]


def refusal_of(
    image: MetadataImage,
    broker_id: int,
    partition: PartitionRegistration,
    data: PartitionData,
    members: Sequence[BrokerState],
) -> ErrorCode:
    """The error of a proposed in-sync set; NONE if it is accepted. The checks are in the order of Apache Kafka's
    controller."""
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # The leader follows a later controller than this one.
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [each.broker_id for each in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if not all(is_eligible(image, partition, each) for each in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def is_eligible(image: MetadataImage, partition: PartitionRegistration, member: BrokerState) -> bool:
    """Whether a replica may be in the in-sync set.

    Its broker must be active, and must not have restarted since it fetched: an earlier incarnation may have had records
    that the broker has lost since (KIP-903). The directory of the replica must be neither LOST nor offline. The broker
    may fetch a replica in such a directory anew, while the leader still knows its former end offset.

    DIVERGES: Apache Kafka does not check the directory: there such a log comes back only when its broker restarts, and
    a leader proposes only replicas that fetch.
    """
    broker = image.cluster.brokers.get(member.broker_id)
    if broker is None or not broker.is_active or member.broker_epoch not in (ANY_EPOCH, broker.epoch):
        return False
    return broker.has_online_directory(partition.directory_of(member.broker_id))


def refused(data: PartitionData, error: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_index=data.partition_index, error_code=error)
