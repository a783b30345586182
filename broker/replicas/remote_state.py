"""Where a follower gets the state of the remote part of its log: a port, which tiered storage serves."""

from __future__ import annotations

from typing import Protocol

from replication.follower_effects import Rebuild
from replication.partition import Partition
from storage.log.remote_start import RemoteStart


class NoRemoteState(Exception):
    """The leader or the remote storage did not tell it now; a later attempt may get it."""


class RemoteState(Protocol):
    """Finds out where a leader's local log begins, and what the remote part before it left behind."""

    async def before_local_log(self, partition: Partition, leader_epoch: int, log_start_offset: int) -> RemoteStart:
        """Raises `NoRemoteState`."""


async def remote_start(state: RemoteState | None, effect: Rebuild) -> RemoteStart:
    """The start of the follower's log. Raises `NoRemoteState`."""
    if state is None:
        raise NoRemoteState("tiered storage is off on this broker (remote.log.storage.system.enable)")
    return await state.before_local_log(effect.partition, effect.leader_epoch, effect.log_start_offset)
