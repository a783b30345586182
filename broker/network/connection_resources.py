"""What a connection uses: the resources that all connections of a node share, and the interface of its listener."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.network.closing_log import ClosingLog
from broker.network.reply_memory import ReplyMemory
from broker.network.request_memory import RequestMemory
from broker.network.request_times import RequestClock
from broker.network.route import Authentication, ServingListener
from broker.purgatory.purgatory import Purgatory
from broker.runtime.environment import Environment
from broker.runtime.tasks import Spawn
from security.access import Access

if TYPE_CHECKING:
    from broker.network.connection import Connection


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
    clock: RequestClock


class ConnectionSecurity(Protocol):
    """The authentication that a listener requires before other requests."""

    def first_access(self, client_host: str) -> Access:
        """The access of a client before it has authenticated."""

    def authentication_of(self, connection: Connection) -> Authentication | None:
        """The SASL exchange of a connection; None where the listener has no SASL."""


class ConnectionListener(ServingListener, Protocol):
    """The listener of a connection, as the connection uses it."""

    @property
    def resources(self) -> ConnectionResources: ...

    @property
    def request_size_max(self) -> int:
        """The most bytes of one request."""

    @property
    def closing_log(self) -> ClosingLog: ...

    @property
    def security(self) -> ConnectionSecurity: ...

    def opened(self, connection: Connection) -> None:
        """A transport is connected to the connection."""

    def closed(self, connection: Connection) -> None:
        """The transport of the connection is gone."""
