"""A client of the cluster inside a node: it sends Kafka requests with the permissions of a console user.

    page ──▶ KafkaClient.ask ──▶ this broker: the route of its listener, in the process
                            └──▶ another broker: the rule of the API here, then a channel between brokers

A request to this broker is authorized like one that came through the listener. Another broker sees the principal of
this node, so the authorization rule of the API is applied here first, with the permissions of the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from moldau.broker.apis.catalogue import LINES, ApiLine
from moldau.broker.apis.forwarding import StandInConnection
from moldau.broker.apis.services import Services
from moldau.broker.config.config import Config
from moldau.broker.console.decoder import Decoder
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.network.listener import Listener
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import Pending, call_with_response
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.schema import fields_of, spec_of
from moldau.security.access import Access, AclOperation, ResourceKind
from moldau.storage.files.port import Offload

CLIENT_ID: Final = "moldau-console"
PURPOSE: Final = "console"
TIMEOUT_MS: Final = 5_000
APIS: Final[Mapping[int, ApiLine]] = {line.key: line for line in LINES.values()}
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConsolePorts:
    """The parts of the broker that the console uses."""

    config: Config
    environment: Environment
    cluster: ClusterView
    quorum: Quorum
    brokers: OtherBrokers
    listeners: tuple[Listener, ...]
    """The listeners of the broker. The first one that demands a login decides how users of the console log in."""
    services: Services
    decoder: Decoder
    """Decodes records that users wrote, in a worker process."""
    offload: Offload
    """Runs work of pages in threads of their own, so that no work on logs waits for it."""

    @property
    def listener(self) -> Listener:
        """The listener whose routes and login serve the requests of the console."""
        logins = (each for each in self.listeners if each.security.has_login)
        return next(logins, self.listeners[0])


class Unanswered(Exception):
    """Raised if a broker gave no response. The message names the broker."""


async def response_when_complete(response: object) -> object:
    """Return the response of a handler: `response` itself, or the result of a `Pending` that completes later. The
    caller may be cancelled before, because its browser leaves.
    """
    waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def complete(answer: object) -> None:
        if not waiting.done():
            waiting.set_result(answer)

    call_with_response(response, complete)
    return await waiting


class KafkaClient:
    """A client that sends requests as one user of the console."""

    def __init__(self, ports: ConsolePorts, access: Access, client_host: str) -> None:
        self.ports = ports
        self.access = access
        self.asker = f"{access.principal} {client_host}"
        self._connection = StandInConnection(ports.listener, access, client_host)

    def may(self, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        """Whether the user may do an operation. A refusal is not written to the audit log, because the page only leaves
        something out.
        """
        access = self.access
        return access.is_unrestricted or access.allows(operation, kind, name, logs_denied=False)

    async def ask(
        self, request: object, response: type[Response], *, broker_id: int | None = None, version: int | None = None
    ) -> Response:
        """Send a request to this broker, or to the broker `broker_id`, and return the response. `version` is the
        version of the request; None for the newest. Raises `Unanswered`.
        """
        line = APIS[spec_of(type(request)).key or 0]
        served = self.ports.listener.routes[line.key].last_version
        version = min(line.last, served) if version is None else version
        if broker_id is None or broker_id == self.ports.config.node_id:
            answer = await response_when_complete(self._serve(line, request, version))
            await asyncio.sleep(0)  # A page that asks this broker many times must not hold the loop.
        else:
            answer = await response_when_complete(self._send(line, request, version, broker_id))
        if isinstance(answer, NoResponseReason):
            raise Unanswered(f"broker {broker_id}: {answer.name.lower().replace('_', ' ')}")
        assert isinstance(answer, response), f"{type(answer).__name__} answers {type(request).__name__}"
        return answer

    def _context(self, line: ApiLine, version: int) -> RequestContext:
        return RequestContext(self._connection, self.ports.listener.routes[line.key], version, 0, CLIENT_ID)

    def _serve(self, line: ApiLine, request: object, version: int) -> object:
        context = self._context(line, version)
        if version not in context.route.decoders:
            context.route.load(version)
        return context.route.handle(context, request)

    def _send(self, line: ApiLine, request: object, version: int, broker_id: int) -> object:
        """Send a request to another broker, if the authorization rule of its API allows it."""
        reply: Pending[object] = Pending()

        def send(context: RequestContext, allowed: object) -> Pending[object]:
            def answered(answer: object) -> None:
                reply.complete(with_own_bytes(answer))

            self.ports.brokers.ask(broker_id, PURPOSE, allowed, answered, TIMEOUT_MS, version or None)
            return reply

        if self.access.is_unrestricted:
            return send(self._context(line, version), request)
        from moldau.broker.apis.needs import guarded_handler

        if isinstance(request, FetchRequest):
            # The handler of Fetch asks the ACLs itself, so the other broker would ask them for this node.
            request.topics = [
                each for each in request.topics if self.may(AclOperation.READ, ResourceKind.TOPIC, each.topic)
            ]
        rule = line.api().rule_of(ListenerRole.BROKER)
        return guarded_handler(rule, ListenerRole.BROKER, self.ports.services, send)(
            self._context(line, version), request
        )


def with_own_bytes(message: object) -> object:
    """Replace the memory views in a response by copies, so that they do not refer to the buffer of the channel. Returns
    the response.
    """
    if isinstance(message, NoResponseReason):
        return message
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if isinstance(value, memoryview):
            setattr(message, field.name, bytes(value))
        elif field.struct is not None and value is not None:
            for each in value if field.is_array else (value,):
                with_own_bytes(each)
    return message
