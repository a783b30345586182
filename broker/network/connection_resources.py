"""What all connections of a node share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from broker.network.reply_memory import ReplyMemory
from broker.network.request_memory import RequestMemory
from broker.purgatory.purgatory import Purgatory
from broker.runtime.environment import Environment
from broker.runtime.tasks import Spawn


@dataclass(frozen=True, slots=True)
class ConnectionResources:
    """Of one node and its event loop.

    `receive_buffer` is where the bytes of every connection arrive: parsing never spans two callbacks. `purgatory` holds
    the checks of delayed operations while a connection handles what arrived.
    """

    loop: asyncio.AbstractEventLoop
    environment: Environment
    spawn: Spawn
    receive_buffer: memoryview
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    purgatory: Purgatory
