"""A controller of one partition, as small as it can be: who lives, who is in sync, who leads; it errs in nothing."""

from __future__ import annotations

from typing import NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)

NOBODY = -1


class Assigned(NamedTuple):
    """What the metadata says of the partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] = ()


class Registered(NamedTuple):
    """A broker, as the metadata has it."""

    epoch: int
    is_active: bool

    def has_online_directory(self, directory_id: bytes) -> bool:
        """A broker has one directory here, and lives no longer than that."""
        return True


class Metadata(NamedTuple):
    assigned: Assigned
    brokers: dict[int, Registered]


class Controller:
    """Every change makes a new `newest`; nodes hear of it when the world lets them."""

    def __init__(self, node_ids: tuple[int, ...]) -> None:
        brokers = {each: Registered(0, is_active=False) for each in node_ids}
        self.newest = Metadata(Assigned(NOBODY, 0, 0, node_ids, node_ids), brokers)
        self._next_broker_epoch = 1

    def registered(self, node_id: int) -> int:
        """A process begins: its epoch. Whoever was in sync under another is not any more, unless nobody else is."""
        epoch, self._next_broker_epoch = self._next_broker_epoch, self._next_broker_epoch + 1
        self._set_broker(node_id, Registered(epoch, is_active=False))
        self._leave(node_id)
        return epoch

    def unfenced(self, node_id: int) -> None:
        self._set_broker(node_id, self.newest.brokers[node_id]._replace(is_active=True))
        if self.newest.assigned.leader == NOBODY:
            self.elect()

    def fenced(self, node_id: int) -> None:
        self._set_broker(node_id, self.newest.brokers[node_id]._replace(is_active=False))
        self._leave(node_id)

    def elect(self, preferred: int = NOBODY) -> None:
        """Somebody who is in sync and lives leads from now on."""
        assigned = self.newest.assigned
        living = [each for each in assigned.isr if self.newest.brokers[each].is_active]
        if preferred in living:
            living = [preferred]
        leader = living[0] if living else NOBODY
        if leader != assigned.leader or preferred != NOBODY:
            self._set(assigned._replace(leader=leader, leader_epoch=assigned.leader_epoch + 1))

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        (topic,) = request.topics
        (data,) = topic.partitions
        assigned = self.newest.assigned
        error = ErrorCode.NONE
        if data.leader_epoch < assigned.leader_epoch or request.broker_id != assigned.leader:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif data.partition_epoch != assigned.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self._may_join(each.broker_id, each.broker_epoch) for each in data.new_isr_with_epochs):
            error = ErrorCode.INELIGIBLE_REPLICA
        else:
            self._set(assigned._replace(isr=tuple(each.broker_id for each in data.new_isr_with_epochs)))
        now = self.newest.assigned
        result = PartitionResult(
            partition_index=0,
            error_code=error,
            leader_id=now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            partition_epoch=now.partition_epoch,
        )
        return AlterPartitionResponse(topics=[TopicResult(topic_id=topic.topic_id, partitions=[result])])

    def _may_join(self, node_id: int, broker_epoch: int) -> bool:
        broker = self.newest.brokers[node_id]
        return broker.is_active and broker.epoch == broker_epoch

    def _leave(self, node_id: int) -> None:
        assigned = self.newest.assigned
        if node_id in assigned.isr and len(assigned.isr) > 1:
            assigned = assigned._replace(isr=tuple(each for each in assigned.isr if each != node_id))
            self._set(assigned)
        if assigned.leader == node_id:
            self.elect()

    def _set(self, assigned: Assigned) -> None:
        self.newest = self.newest._replace(
            assigned=assigned._replace(partition_epoch=self.newest.assigned.partition_epoch + 1)
        )

    def _set_broker(self, node_id: int, broker: Registered) -> None:
        self.newest = self.newest._replace(brokers={**self.newest.brokers, node_id: broker})
