"""The share partitions that this broker runs: each is loaded at its first fetch, and forgotten once it has ended and
its last change is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.broker.replicas.replicas import Replicas
from moldau.broker.share_partitions.dead_letter_queue import DeadLetterCounts
from moldau.broker.share_partitions.runner import ShareCounts, SharePartitionPorts, SharePartitionRunner
from moldau.broker.share_partitions.settings import ShareSettings
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.errors import ErrorCode


class SharePartitionRegistry:
    """All share partitions of this broker."""

    def __init__(self, replicas: Replicas, ports: SharePartitionPorts) -> None:
        self._replicas = replicas
        self._ports = ports
        self._of: dict[ShareKey, SharePartitionRunner] = {}
        self._former: dict[ShareKey, SharePartitionRunner] = {}
        """The runners of share partitions that have ended, as long as they still store a change."""

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[SharePartitionRunner]:
        return iter([*self._of.values()])

    @property
    def counts(self) -> ShareCounts:
        return self._ports.counts

    @property
    def dead_letter_counts(self) -> DeadLetterCounts:
        return self._ports.dead_letters.counts

    def settings_of(self, group_id: str) -> ShareSettings:
        return self._ports.settings.settings_of(group_id)

    def find(self, key: ShareKey) -> SharePartitionRunner | None:
        return self._of.get(key)

    def get(self, key: ShareKey) -> SharePartitionRunner | ErrorCode:
        """The runner of a share partition. If it is new, it is created and begins to load. Returns an error code
        instead if this broker does not lead the partition.
        """
        found = self._of.get(key)
        if found is not None:
            if found.partition.leader_epoch == found.machine.leader_epoch:
                return found
            found.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition = self._replicas.find((key.topic_id, key.partition))
        if partition is None:
            return self._replicas.error_of(key.topic_id, key.partition)
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        shared = self._of[key] = SharePartitionRunner(key, partition, self._ports, self._forget)
        shared.load(self._former.get(key))
        return shared

    def _forget(self, shared: SharePartitionRunner) -> None:
        if self._of.get(shared.key) is shared:
            del self._of[shared.key]
        # If the one before it still stores something, this one was not loaded, and has nothing to store.
        if self._former.setdefault(shared.key, shared) is shared:
            shared.call_when_stored(lambda: self._stored(shared))

    def _stored(self, shared: SharePartitionRunner) -> None:
        if self._former.get(shared.key) is shared:
            del self._former[shared.key]

    def on_group_left(self, group_id: str) -> None:
        """End the share partitions of a group, because no member of the group has a session on this broker any more."""
        for key in [key for key in self._of if key.group_id == group_id]:
            self._of[key].fence(ErrorCode.NOT_LEADER_OR_FOLLOWER, is_left=True)
