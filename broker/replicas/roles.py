"""Gives each replica on this broker its role, leader or follower, as the committed metadata assigns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.broker.config.internal_topics import INTERNAL_TOPICS
from moldau.broker.replicas.replica_fetchers import ReplicaFetchers
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.flusher import Flusher
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.replication.partition import Partition


class Coordinators(Protocol):
    """Starts and stops coordinators: each runs on the broker that leads its partition."""

    def on_leadership_gained(self, partition: Partition) -> None:
        """Start the coordinator of a partition that this broker leads now."""

    def on_leadership_lost(self, partition: Partition) -> None:
        """Stop the coordinator of a partition that this broker does not lead any more."""


class ReplicaRoles:
    """Makes replicas leaders or followers. Before `begin`, replicas are served without a role."""

    def __init__(
        self,
        node_id: int,
        replicas: Replicas,
        fetchers: ReplicaFetchers,
        flusher: Flusher,
        coordinators: Coordinators,
        leadership_gained: Callable[[], None],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`leadership_gained`: called when this broker begins to lead a partition that has followers."""
        self._node_id = node_id
        self._replicas = replicas
        self._fetchers = fetchers
        self._flusher = flusher
        self._coordinators = coordinators
        self._leadership_gained = leadership_gained
        self._monotonic_ms = monotonic_ms
        self.are_assumed = False
        """Whether replicas get roles: `begin` was called."""

    def begin(self) -> None:
        """Give replicas their roles from now on, because this broker is registered, and has read the metadata up to its
        registration.

        Earlier metadata may name this broker as the leader of an epoch in which its previous process led. That process
        may have replicated records that this broker has lost with its power, and an epoch must have one history.
        """
        self.are_assumed = True

    def serve(self, partition: Partition, assigned: Assigned) -> None:
        """Add a replica whose log is open, in the role that the metadata assigns to it."""
        partition.is_internal = partition.topic in INTERNAL_TOPICS
        self._replicas.add(partition)
        self.assume(partition, assigned)

    def assume(self, partition: Partition, assigned: Assigned) -> None:
        """Make a replica leader or follower, as the metadata assigns it."""
        partition.min_insync_replicas = min(partition.log.config.min_insync_replicas, len(assigned.replicas))
        if not self.are_assumed:
            return
        was_leader, epoch_before = partition.is_leader, partition.leader_epoch
        if assigned.leader == self._node_id:
            self._lead(partition, assigned, epoch_before)
        else:
            partition.become_follower(assigned.leader, assigned.leader_epoch, assigned.partition_epoch)
            if was_leader or assigned.leader_epoch != epoch_before:
                self._fetchers.follow(partition)
        if partition.is_leader and not was_leader:
            self._coordinators.on_leadership_gained(partition)
        elif was_leader and not partition.is_leader:
            self._coordinators.on_leadership_lost(partition)

    def _lead(self, partition: Partition, assigned: Assigned, epoch_before: int) -> None:
        self._fetchers.unfollow(partition)
        replicas_before = partition.leadership.replicas if partition.leadership is not None else ()
        partition.become_leader(
            assigned.leader,
            assigned.leader_epoch,
            assigned.isr,
            replicas=assigned.replicas,
            partition_epoch=assigned.partition_epoch,
            now_ms=self._monotonic_ms(),
        )
        is_new = assigned.leader_epoch > epoch_before or assigned.replicas != replicas_before
        if is_new and len(assigned.replicas) > 1:
            self._leadership_gained()
        if partition.awaits_flush:
            self._flusher.flush(partition.log)  # Records that the previous process left in the page cache.

    def forget(self, partition: Partition) -> None:
        """Stop following, leading and flushing a replica that was deleted or moved to another broker."""
        if partition.is_leader:
            self._coordinators.on_leadership_lost(partition)
        self._fetchers.unfollow(partition)
        partition.notify_removed()
        self._flusher.forget_log(partition.log)

    def take_offline(self, partition: Partition) -> None:
        """Stop serving a replica whose log has failed: requests that wait for it are answered with
        KAFKA_STORAGE_ERROR.
        """
        self._coordinators.on_leadership_lost(partition)
        self._fetchers.unfollow(partition)
        self._replicas.take_offline(partition)
