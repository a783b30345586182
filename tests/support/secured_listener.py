"""A listener of Heartbeat on the loopback, with TLS and a SASL mechanism as a test wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from moldau.broker.apis.catalogue import LINES, route
from moldau.broker.config.sasl import SaslSettings
from moldau.broker.network.authentication.exchange import MechanismMaker
from moldau.broker.network.authentication.sasl import SaslGate
from moldau.broker.network.connection import Connection
from moldau.broker.network.connection_resources import ClosingLog, ConnectionListener, ConnectionResources
from moldau.broker.network.listener_security import AuthenticationCounts, ListenerSecurity
from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.network.peer_security import NodeTls
from moldau.broker.network.route import ListenerRole, RequestContext, Route, RouteBinding
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.security.access import Unrestricted
from moldau.security.principal import USER, Principal
from moldau.security.tls.certificate_names import subject_name
from tests.support.apis import APIS
from tests.support.purgatories import purgatory_of
from tests.support.request_clocks import request_clock

if TYPE_CHECKING:
    from moldau.broker.network.connection_resources import ConnectionListener

HEARTBEAT, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 12, 17, 18, 36


class SecuredListener:
    """What a `Connection` needs of its listener, and what tests look at."""

    name = "TEST"
    role = ListenerRole.BROKER
    request_size_max = 1 << 20

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: NodeTls | None,
        mechanisms: Mapping[str, MechanismMaker] | None = None,
    ) -> None:
        self.handled = 0
        self.connections_made = 0
        self.principals: list[Principal] = []
        """The principals of the requests, each once."""
        self.port = 0
        self.closing_log = ClosingLog(loop)
        self.closing: set[Connection] = set()
        self.is_for_nodes = False
        self.resources = ConnectionResources(
            loop,
            LocalEnvironment(loop),
            lambda work, name="": None,
            memoryview(bytearray(1 << 16)),
            RequestMemory(None, loop),
            ReplyMemory(-1, loop),
            purgatory_of(loop),
            clock := request_clock(loop),
            cast("Any", None),
            TurnScheduler(clock, loop.call_soon),
        )
        self.routes = {key: self._route(key) for key in (HEARTBEAT, API_VERSIONS)}
        for row in APIS:
            if row.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
                self.routes[row.key] = route(LINES[row.name], ListenerRole.BROKER, cast("Any", None))
        counts = AuthenticationCounts()
        gate = None
        if mechanisms is not None:
            settings = SaslSettings("TEST", tuple(mechanisms), {}, 1 << 16, 0, {})
            gate = SaslGate(
                settings,
                mechanisms,
                lambda principal, host: Unrestricted(principal),
                cast("Any", None),
                counts,
                self.resources.environment,
                loop,
                self.resources.spawn,
            )
        self.security = ListenerSecurity(
            lambda principal, host: Unrestricted(principal),
            counts,
            entrance=tls,
            login=None if gate is None else gate.begin,
            principal_of=lambda certificate: Principal(USER, subject_name(certificate)),
        )
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._open: dict[Connection, None] = {}

    async def open(self) -> None:
        self._server = await self._loop.create_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in tuple(self._open):
            connection.close("the test is over")
        await asyncio.sleep(0)

    def opened(self, connection: Connection) -> None:
        self._open[connection] = None

    def closed(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def _accepted(self) -> asyncio.BaseProtocol:
        self.connections_made += 1
        return self.security.protocol_for(Connection(cast("ConnectionListener", self), "127.0.0.1"))

    def _route(self, key: int) -> Route:
        if key == HEARTBEAT:
            return Route(
                HEARTBEAT, "Heartbeat", 0, 4, lambda: RouteBinding(HeartbeatRequest, HeartbeatResponse, self._handle)
            )
        return Route(
            API_VERSIONS,
            "ApiVersions",
            0,
            4,
            lambda: RouteBinding(ApiVersionsRequest, ApiVersionsResponse, self._greet),
        )

    def _handle(self, context: RequestContext, request: object) -> HeartbeatResponse:
        self.handled += 1
        if context.principal not in self.principals:
            self.principals.append(context.principal)
        return HeartbeatResponse()

    def _greet(self, context: RequestContext, request: object) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=[ApiVersion(api_key=HEARTBEAT, min_version=0, max_version=4)])
