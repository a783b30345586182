"""The interface through which a follower gets the state of the remote part of its log; tiered storage implements it."""

from __future__ import annotations

from typing import Protocol

from moldau.replication.follower_effects import Rebuild
from moldau.replication.partition import Partition
from moldau.storage.log.remote_start import RemoteStart


class NoRemoteState(Exception):
    """The leader or the remote storage did not provide the state; a later attempt may succeed."""


class RemoteState(Protocol):
    """Finds the start of a leader's local log, and the state at the end of the remote part before it."""

    async def before_local_log(self, partition: Partition, leader_epoch: int, log_start_offset: int) -> RemoteStart:
        """Find the offset at which the follower's log starts, and the state there, from the leader and remote storage.
        Raises `NoRemoteState`.
        """


async def remote_start(state: RemoteState | None, effect: Rebuild) -> RemoteStart:
    """The start of the follower's log. Raises `NoRemoteState`."""
    if state is None:
        raise NoRemoteState("tiered storage is off on this broker (remote.log.storage.system.enable)")
    return await state.before_local_log(effect.partition, effect.leader_epoch, effect.log_start_offset)
