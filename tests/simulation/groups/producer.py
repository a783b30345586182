"""A producer that commits offsets of groups in its transactions, and the coordinator of those transactions with it."""

from __future__ import annotations

from itertools import count
from random import Random

from moldau.coordinator.group import events
from moldau.coordinator.runtime.machine import TransactionEnd, Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.groups.client import TOPICS, Client, Sent

COMMIT_VERSION = 3
MARKER_VERSION = 1


class Producer:
    """Under version 2 of transactions, which a seed draws, each transaction has an epoch of its own. Under the older
    protocol a late request of one transaction may become part of the next."""

    def __init__(self, producer_id: int, random: Random, offsets: count[int]) -> None:
        self.producer_id = producer_id
        self.random = random
        self.offsets = offsets
        """Each is committed once."""
        self.epoch = 0
        self.is_open = self.is_waiting = False
        self.outcome: bool | None = None
        """What the transaction coordinator has decided, and tells until it hears that the marker is written."""
        self._has_new_epochs = random.random() < 0.5

    def request(self, group_id: str, member: Client | None) -> Sent:
        """What comes next: offsets of a group, perhaps for a member of it, or the end of the transaction."""
        if self.outcome is None and self.is_open and self.random.random() < 0.3:
            self.outcome = self.random.random() < 0.6
        if self.outcome is not None:
            return self._end(self.outcome)
        self.is_open = True
        return self._commit(group_id, member)

    def _commit(self, group_id: str, member: Client | None) -> Sent:
        epoch, random = self.epoch, self.random
        generation, member_id, instance = -1, "", None
        if member is not None:
            generation, member_id, instance = member.generation, member.member_id, member.instance
        placed = [
            (random.choice(TOPICS), random.randint(0, 1), next(self.offsets)) for _ in range(random.choice((1, 2)))
        ]

        def make(waiter: Waiter) -> events.Event:
            topics = [
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_leader_epoch=offset % 7
                        )
                    ],
                )
                for topic, index, offset in placed
            ]
            request = TxnOffsetCommitRequest(
                transactional_id=f"x{self.producer_id}",
                group_id=group_id,
                producer_id=self.producer_id,
                producer_epoch=epoch,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=instance if member_id else None,
                topics=topics,
            )
            return events.CommitTransactionalOffsets(waiter, request)

        return make, COMMIT_VERSION

    def _end(self, is_commit: bool) -> Sent:
        producer_id, epoch, end = self.producer_id, self.epoch, TransactionEnd(is_commit, coordinator_epoch=0)
        return lambda waiter: events.EndOffsetsTransaction(waiter, producer_id, epoch, end), MARKER_VERSION

    def hear(self, response: object) -> None:
        self.is_waiting = False
        if response is ErrorCode.NONE:
            self.is_open, self.outcome = False, None
            self.epoch += self._has_new_epochs
