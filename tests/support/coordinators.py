"""Who coordinates a key, and the state of share partitions that a coordinator initializes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
"""The types of keys in FindCoordinator."""
LOOKUPS_MAX: Final = 200
WAIT_S: Final = 0.1
Ask = Callable[[object, int], Awaitable[Any]]
"""Sends a request in a version, and returns the response: the `ask` of a client, or the `ask_any` of a cluster."""


async def coordinator_of(ask: Ask, key: str, key_type: int = GROUP) -> int:
    """The node id of a key's coordinator; -1 while there is none. Raises as `ask`."""
    (found,) = (await ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 6)).coordinators
    return found.node_id if found.error_code == ErrorCode.NONE else -1


async def until_coordinated(ask: Ask, key: str, key_type: int = GROUP) -> int:
    """The node id of a key's coordinator, once there is one. Raises as `ask`."""
    for _ in range(LOOKUPS_MAX):
        found = await coordinator_of(ask, key, key_type)
        if found >= 0:
            return found
        await asyncio.sleep(WAIT_S)
    raise AssertionError(f"{key} has no coordinator")


async def initialize_share_state(
    ask: Ask, group: str, topic_id: bytes, partitions: range = range(1), start_offset: int = 0
) -> None:
    """Initialize share partitions, once their coordinator is there."""
    from moldau.broker.coordinators.share_coordinator import coordinator_key
    from moldau.coordinator.share_coordinator.state import ShareKey

    data = [initialize.PartitionData(partition=index, state_epoch=1, start_offset=start_offset) for index in partitions]
    topic = initialize.InitializeStateData(topic_id=topic_id, partitions=data)
    request = initialize.InitializeShareGroupStateRequest(group_id=group, topics=[topic])
    while True:
        await coordinator_of(ask, coordinator_key(ShareKey(group, topic_id, partitions[0])), SHARE)
        answer = await ask(request, 0)
        if all(each.error_code == ErrorCode.NONE for each in answer.results[0].partitions):
            return
        await asyncio.sleep(WAIT_S)
