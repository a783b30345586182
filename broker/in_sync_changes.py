"""Asks the controller for other in-sync sets: followers that have caught up join, those that lag behind leave.

One request is under way at a time, with everything that was proposed meanwhile in the next. A proposal stands until the
controller has answered it, for nobody knows which set holds until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.background import Job
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from replication.partition import Partition

if TYPE_CHECKING:
    from broker.node import Broker


class InSyncChanges:
    """Owned by the loop; partitions hold what is proposed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lag_ms_max = broker.config.integer("replica.lag.time.max.ms")
        self._proposed: dict[Partition, tuple[int, ...]] = {}
        self._is_asking = False

    def job(self) -> Job:
        """Looks for laggards, twice in replica.lag.time.max.ms."""
        return Job("in-sync sets", max(1, self._lag_ms_max // 2), self._shrink)

    def may_join(self, partition: Partition, replica_id: int) -> None:
        """A follower has fetched: let it in where it has caught up, is alive, and is the incarnation that we know."""
        leadership = partition.leadership
        if leadership is None:
            return
        isr = leadership.set_with(replica_id, partition.high_watermark)
        if isr is not None and self._is_eligible(replica_id, leadership.followers[replica_id].broker_epoch):
            self._propose(partition, isr)

    async def _shrink(self) -> None:
        now_ms = self._broker.environment.monotonic_ms()
        for partition in self._broker.replicas:
            leadership = partition.leadership
            if leadership is not None and leadership.followers:
                isr = leadership.set_without_laggards(partition.log.end_offset, self._lag_ms_max, now_ms)
                if isr is not None:
                    self._propose(partition, isr)

    def _is_eligible(self, replica_id: int, broker_epoch: int) -> bool:
        broker = self._broker.image.cluster.brokers.get(replica_id)
        return broker is not None and broker.is_active and broker_epoch == broker.epoch

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.propose(isr)
        self._proposed[partition] = isr
        self._ask()

    def _ask(self) -> None:
        if self._is_asking or not self._proposed:
            return
        self._is_asking = True
        asked, self._proposed = self._proposed, {}
        request = AlterPartitionRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.registration.epoch,
            topics=self._topics(asked),
        )
        epochs = {partition: partition.leader_epoch for partition in asked}
        self._broker.quorum.submit(request, lambda response: self._answered(asked, epochs, response))

    def _topics(self, asked: dict[Partition, tuple[int, ...]]) -> list[TopicData]:
        topics: dict[bytes, TopicData] = {}
        for partition, isr in asked.items():
            data = PartitionData(
                partition_index=partition.index,
                leader_epoch=partition.leader_epoch,
                new_isr=list(isr),
                new_isr_with_epochs=[
                    BrokerState(broker_id=each, broker_epoch=self._epoch_of(partition, each)) for each in isr
                ],
                partition_epoch=partition.partition_epoch,
            )
            topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id)).partitions.append(data)
        return list(topics.values())

    def _epoch_of(self, partition: Partition, replica_id: int) -> int:
        """Of the incarnation that fetches: the controller refuses one that is not the registered one (KIP-903)."""
        if replica_id == self._broker.node_id:
            return self._broker.registration.epoch
        follower = partition.leadership.followers.get(replica_id) if partition.leadership is not None else None
        return follower.broker_epoch if follower is not None else -1

    def _answered(
        self, asked: dict[Partition, tuple[int, ...]], epochs: dict[Partition, int], response: AlterPartitionResponse
    ) -> None:
        self._is_asking = False
        if response.error_code != ErrorCode.NONE:
            # Nobody decided, or nobody knows: ask for the same again, where the partition is still ours to ask for.
            self._proposed = {
                partition: isr
                for partition, isr in asked.items()
                if partition.leader_epoch == epochs[partition] and partition.is_leader
            } | self._proposed
            self._broker.loop.call_later(1, self._ask)
            return
        answers = {
            (topic.topic_id, each.partition_index): each for topic in response.topics for each in topic.partitions
        }
        for partition in asked:
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None or partition.leader_epoch != epochs[partition]:
                continue  # what has changed meanwhile comes with the metadata
            if answer.error_code == ErrorCode.NONE:
                partition.in_sync_set_confirmed(tuple(answer.isr), answer.partition_epoch)
            else:
                partition.in_sync_set_refused()
        self._ask()
