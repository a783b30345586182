"""Proposes in-sync sets to the controller: followers that have caught up join, those that lag behind leave.

One request is in progress at a time; later proposals go into the next one. A proposal is pending until the controller
has answered it, or newer metadata has replaced it. Until then either set may be in force.

answer of the controller                          effect on the proposal
NONE                                              confirmed, as in the answer
INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED       refused: the confirmed set stays in force
INVALID_UPDATE_VERSION, FENCED_LEADER_EPOCH, ...  pending until newer metadata: an earlier request may have been
                                                  accepted, and its answer lost
anything else, or no answer                       proposed again, unless newer metadata has replaced it
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.topic_creation import ControllerPort
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Job
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from moldau.replication.partition import Partition

PARTITIONS_AT_ONCE: Final = 100
"""The number of partitions that are checked for lagging followers before other callbacks of the event loop run."""
RETRY_MS: Final = 50
REFUSED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
METADATA_WILL_TELL: Final = (
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class InSyncProposal(NamedTuple):
    """A proposed in-sync set, with the epochs that the partition had when the set was proposed."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class InSyncChanges:
    """The proposals of in-sync sets for the partitions that this broker leads. Its methods are called on the event
    loop; each partition holds the set that was proposed for it.
    """

    def __init__(
        self,
        node_id: int,
        lag_ms_max: int,
        replicas: Replicas,
        cluster: ClusterView,
        controller: ControllerPort,
        broker_epoch: Callable[[], int],
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`lag_ms_max`: replica.lag.time.max.ms. `broker_epoch`: the epoch of this broker's registration."""
        self._node_id = node_id
        self._lag_ms_max = lag_ms_max
        self._replicas = replicas
        self._cluster = cluster
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._environment = environment
        self._loop = loop
        self._proposed: dict[Partition, InSyncProposal] = {}
        self._is_asking = False
        self.shrink_count = 0
        self.expand_count = 0
        self.failure_count = 0

    def job(self) -> Job:
        """The job that checks for lagging followers, twice in replica.lag.time.max.ms."""
        return Job("in-sync sets", max(1, self._lag_ms_max // 2), self._shrink)

    def propose_if_caught_up(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Propose a follower for the in-sync set if it has caught up, is not fenced, and fetches with the broker epoch
        of its registration.
        """
        leadership = partition.leadership
        if leadership is None or replica_id in leadership.in_sync.confirmed:
            return
        follower = leadership.followers[replica_id]
        is_eligible = self._is_eligible(partition, replica_id, follower.broker_epoch)
        keeps_up = not follower.has_lagged_longer_than(partition.log.end_offset, self._lag_ms_max, now_ms)
        leadership.set_joining(replica_id, is_eligible and keeps_up)
        isr = leadership.in_sync_set_with(replica_id, partition.high_watermark)
        if isr is not None and is_eligible:
            self._propose(partition, isr)

    def on_brokers_changed(self) -> None:
        """Apply changes of registered brokers. A commit stops waiting for a joining follower whose broker was fenced. A
        follower whose broker was unfenced may be proposed for the in-sync set.
        """
        now_ms = self._environment.monotonic_ms()
        for partition in self._replicas:
            self._give_up_joining(partition, now_ms)
            self._let_in(partition, now_ms)

    async def _shrink(self) -> None:
        now_ms = self._environment.monotonic_ms()
        for number, partition in enumerate(tuple(self._replicas)):
            if number % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                await asyncio.sleep(0)
            leadership = partition.leadership
            if leadership is not None and leadership.followers:
                isr = leadership.in_sync_set_without_lagging(partition.log.end_offset, self._lag_ms_max, now_ms)
                if isr is not None:
                    self._propose(partition, isr)
                self._give_up_joining(partition, now_ms)
                self._let_in(partition, now_ms)

    def _let_in(self, partition: Partition, now_ms: int) -> None:
        """Propose followers that have caught up.

        A follower that has all records may not fetch for a while, so the conditions are checked here as well as at a
        fetch.
        """
        leadership = partition.leadership
        for replica_id, follower in leadership.followers.items() if leadership is not None else ():
            if not follower.has_lagged_longer_than(partition.log.end_offset, self._lag_ms_max, now_ms):
                self.propose_if_caught_up(partition, replica_id, now_ms)

    def _give_up_joining(self, partition: Partition, now_ms: int) -> None:
        leadership = partition.leadership
        for replica_id, follower in leadership.followers.items() if leadership is not None else ():
            if follower.is_joining and leadership is not None:
                lags = follower.has_lagged_longer_than(partition.log.end_offset, self._lag_ms_max, now_ms)
                leadership.set_joining(
                    replica_id, not lags and self._is_eligible(partition, replica_id, follower.broker_epoch)
                )
                partition.advance_high_watermark()

    def _is_eligible(self, partition: Partition, replica_id: int, broker_epoch: int) -> bool:
        """Whether the controller would accept the replica in the in-sync set."""
        image = self._cluster.image
        broker = image.cluster.brokers.get(replica_id)
        assigned = image.topics.partition(partition.topic, partition.index)
        if broker is None or assigned is None or not broker.is_active or broker_epoch != broker.epoch:
            return False
        return broker.has_online_directory(assigned.directory_of(replica_id))

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.propose_in_sync_set(isr)
        self._proposed[partition] = InSyncProposal(isr, partition.leader_epoch, partition.partition_epoch)
        self._ask()

    def _ask(self) -> None:
        asked = {
            partition: proposal for partition, proposal in self._proposed.items() if is_unchanged(partition, proposal)
        }
        if self._is_asking:
            return
        self._proposed = {}
        if not asked:
            return
        self._is_asking = True
        request = AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=self._topics(asked),
        )
        self._controller.submit(request, lambda response: self._answered(asked, response))

    def _topics(self, asked: dict[Partition, InSyncProposal]) -> list[TopicData]:
        topics: dict[bytes, TopicData] = {}
        for partition, proposal in asked.items():
            data = PartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr=list(proposal.isr),
                new_isr_with_epochs=[
                    BrokerState(broker_id=each, broker_epoch=self._epoch_of(partition, each)) for each in proposal.isr
                ],
                partition_epoch=proposal.partition_epoch,
            )
            topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id)).partitions.append(data)
        return list(topics.values())

    def _epoch_of(self, partition: Partition, replica_id: int) -> int:
        """The broker epoch with which a replica fetches; -1 if the replica has not fetched.

        The controller refuses any other than the registered one (KIP-903).
        """
        if replica_id == self._node_id:
            return self._broker_epoch()
        follower = partition.leadership.followers.get(replica_id) if partition.leadership is not None else None
        return follower.broker_epoch if follower is not None else -1

    def _answered(self, asked: dict[Partition, InSyncProposal], response: AlterPartitionResponse) -> None:
        self._is_asking = False
        answers = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        again: dict[Partition, InSyncProposal] = {}
        for partition, proposal in asked.items():
            answer = answers.get((partition.topic_id, partition.index))
            error = response.error_code or (answer.error_code if answer is not None else ErrorCode.UNKNOWN_SERVER_ERROR)
            self.failure_count += error != ErrorCode.NONE
            if answer is not None and error == ErrorCode.NONE:
                self._confirmed(partition, proposal, tuple(answer.isr), answer.partition_epoch)
            elif not is_unchanged(partition, proposal) or error in METADATA_WILL_TELL:
                continue
            elif error in REFUSED:
                partition.drop_in_sync_proposal()
            else:
                again[partition] = proposal
        self._proposed = again | self._proposed
        if again:
            self._loop.call_later(RETRY_MS / 1000, self._ask)
        else:
            self._ask()

    def _confirmed(
        self, partition: Partition, proposal: InSyncProposal, isr: tuple[int, ...], partition_epoch: int
    ) -> None:
        if len(proposal.isr) > len(partition.isr):
            self.expand_count += 1
        else:
            self.shrink_count += 1
        if partition.leader_epoch == proposal.leader_epoch:
            partition.confirm_in_sync_set(isr, partition_epoch)
            self._let_in(partition, self._environment.monotonic_ms())


def is_unchanged(partition: Partition, proposal: InSyncProposal) -> bool:
    """Whether the partition has the epochs and the proposed set that it had when `proposal` was made. If not, the
    answer of the controller to the proposal is obsolete.
    """
    leadership = partition.leadership
    return (
        leadership is not None
        and partition.leader_epoch == proposal.leader_epoch
        and partition.partition_epoch == proposal.partition_epoch
        and leadership.in_sync.proposed == proposal.isr
    )
