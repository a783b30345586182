"""The resources that all connections of a node share."""

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
    """The resources that the connections of one node share on its event loop.

    `receive_buffer` receives the bytes of every connection: parsing never spans two callbacks. `purgatory` delays the
    checks of operations while a connection handles received bytes.
    """

    loop: asyncio.AbstractEventLoop
    environment: Environment
    spawn: Spawn
    receive_buffer: memoryview
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    purgatory: Purgatory
