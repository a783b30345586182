"""A route: one API as a listener serves it, from the version in a request's header to the handler, and back.

    raw frame ──▶ FrameHook.answer ──▶ reply frame             only if a hook has learned from earlier requests
        │ not one of these
        ▼
    decoders[version] ──▶ handle(context, request) ──▶ encoders[version]

The connection does not depend on any API: the route has everything that is specific to one.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Flag
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.config.config import Config
from moldau.broker.network.request_times import RequestTimes
from moldau.broker.runtime.pending import NOTHING
from moldau.protocol.compiler import Decoder, Encoder, encoder_of, request_decoder_of, short_decoder_of
from moldau.protocol.primitives import BytesLike
from moldau.protocol.schema import header_flexible_from
from moldau.security.access import Access
from moldau.security.principal import Principal

if TYPE_CHECKING:
    from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest

SASL_AUTHENTICATE_KEY: Final = 36
NO_TIMES: Final = RequestTimes(-1)
"""The times of a route that has served no request."""
_SIZE: Final = struct.Struct(">i").pack
VersionRefusal = Callable[["Route"], object]
VersionEncoder = Callable[[int, Encoder[object]], Encoder[object]]
"""Makes the encoder of a version from the encoder of the response class: in some versions the two differ."""


class ListenerRole(Flag):
    """Whether a listener belongs to the broker or to the controller of its node.

    An API is served by listeners of one role, or of both.
    """

    BROKER = 0b01
    CONTROLLER = 0b10
    BOTH = 0b11


def role_of(listener_name: str, config: Config) -> ListenerRole:
    """The role of a listener with this name."""
    return ListenerRole.CONTROLLER if listener_name in config.controller_listener_names else ListenerRole.BROKER


class ServingListener(Protocol):
    """The listener behind which a request is served."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> ListenerRole: ...

    @property
    def routes(self) -> Mapping[int, Route]:
        """The routes by API key."""

    def access_of(self, principal: Principal, client_host: str) -> Access:
        """The access of a principal whose requests a broker forwards."""


class Authentication(Protocol):
    """The SASL exchange of a connection, as the handlers of its requests see it."""

    def handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> object:
        """The response to SaslHandshake, or a `Pending` that becomes it."""

    def authenticate(self, context: RequestContext, request: SaslAuthenticateRequest) -> object:
        """The response to SaslAuthenticate, or a `Pending` that becomes it."""

    def closed(self) -> None:
        """Release the exchange, because the connection is closed."""


class ClientConnection(Protocol):
    """The connection of a request, as handlers see it."""

    client_host: str
    client_port: int
    software: tuple[str, str]
    """The name and version of the client's library, from its ApiVersions request."""
    served: dict[tuple[str | bytes, int], int]
    """The last fetch offset of each partition with records in a Fetch reply of this connection. If the same offset
    was fetched a second time it is stored as ~offset: the client may have refused damaged records.
    """
    heartbeat_broker_id: int
    """The broker whose heartbeats come through this connection; -1 for none."""
    is_of_follower: bool
    """Whether a broker that may replicate has fetched through this connection."""

    access: Access
    """The access of the authenticated principal."""
    authentication: Authentication | None
    """The SASL exchange; None if the listener has none."""

    @property
    def listener(self) -> ServingListener: ...

    def close(self, reason: str) -> None:
        """Close the connection; replies that are ready are still sent."""

    def sends_files(self) -> bool:
        """Whether a reply may hold slices of files instead of their bytes; once true, it stays true."""

    def hold(self) -> None:
        """Handle no further request until the work passed to `hold_during` has ended."""

    def throttle(self, delay_ms: int) -> None:
        """Mute the connection for this time (ms): it reads and handles no requests, and still sends replies."""

    def hold_during(self, work: Coroutine[object, object, None]) -> Coroutine[object, object, None]:
        """Run `work`, then handle the requests that arrived meanwhile."""


class RequestContext:
    """The header of a request, its connection and its client: everything that a handler gets besides the message."""

    __slots__ = (
        "began_ns",
        "client_id",
        "completed_ns",
        "connection",
        "correlation_id",
        "decoded_ns",
        "encoded_ns",
        "end_position",
        "handled_ns",
        "is_decoded_aside",
        "is_long",
        "is_part",
        "received_ns",
        "request",
        "request_size",
        "response_size",
        "route",
        "version",
        "waits_for",
        "written_ns",
    )

    def __init__(
        self, connection: ClientConnection, route: Route, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.connection = connection
        self.route = route
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        # The stages of a request that a connection received (`broker/network/request_times.py`); 0 before they end.
        self.received_ns = self.began_ns = self.decoded_ns = self.handled_ns = 0
        self.completed_ns = self.encoded_ns = self.written_ns = 0
        self.waits_for = NOTHING
        """What the request waited for."""
        self.request: object = None
        self.request_size = self.response_size = 0
        self.end_position = 0
        """The end of the reply among all bytes that are written to the connection."""
        self.is_long = False
        """Whether an executor thread encodes the response, because it has too many elements for the event loop."""
        self.is_part = False
        """Whether the handler gets a long request part by part."""
        self.is_decoded_aside = False
        """Whether an executor thread decodes the request."""

    @property
    def listener(self) -> ServingListener:
        """The listener of the connection, which determines the addresses that the client is given."""
        return self.connection.listener

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def access(self) -> Access:
        """The access of the client."""
        return self.connection.access

    @property
    def principal(self) -> Principal:
        """The authenticated principal of the client."""
        return self.connection.access.principal


Handler = Callable[[RequestContext, object], object]
"""Handles a request. Returns the response, a `Pending` that becomes it, or None if no response is expected."""


class FrameHook(ABC):
    """Answers frames of one connection without decoding them, based on earlier requests.

    It is a base class rather than a Protocol, so that compiled code calls it without looking up a name.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self.client_id: str | None = None
        """The client id of the last request that the hook learned from."""

    def partitions(self) -> list[str]:
        """The partitions of the frames that the hook answers, for the log of slow requests."""
        return []

    @abstractmethod
    def answer(self, connection: ClientConnection, frame: memoryview) -> bytes | tuple[RequestContext, object] | None:
        """Answer a frame. Returns the whole reply frame; None for a frame that has to be decoded and handled normally.

        If the hook has handled the request and the reply is not a simple one, it returns the context and the handler's
        result.
        """

    def context_of(self, connection: ClientConnection, frame: memoryview) -> RequestContext:
        """The context of a frame that the hook answered. Version and correlation id are 0 if it has no header."""
        return RequestContext(connection, self.route, 0, 0, self.client_id)

    @abstractmethod
    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        """Learn from a request that was decoded and handled.

        Returns whether `answer` should be tried for the next frame.
        """


HookMaker = Callable[["Route"], FrameHook]


class Binding:
    """The handler of a route, its message classes and its hook. It is made at the first request, so that a start
    imports no handlers.
    """

    __slots__ = (
        "decoded_size_max",
        "handle",
        "hook",
        "refuse_version",
        "request_class",
        "response_class",
        "version_encoder",
    )

    def __init__(
        self,
        request_class: type[object],
        response_class: type[object],
        handle: Handler,
        hook: HookMaker | None = None,
        refuse_version: VersionRefusal | None = None,
        decoded_size_max: int | None = None,
        version_encoder: VersionEncoder | None = None,
    ) -> None:
        """`hook` makes the hook of a connection. The handler gets None for a request in a frame of more than
        `decoded_size_max` bytes.

        `refuse_version` makes the response to a request in a version that is not served. The response is encoded in
        the first version of the API. Without `refuse_version` such a request ends its connection.
        """
        self.request_class = request_class
        self.response_class = response_class
        self.handle = handle
        self.hook = hook
        self.refuse_version = refuse_version
        self.decoded_size_max = decoded_size_max
        self.version_encoder = version_encoder
        """None if every version is encoded by the encoder of the response class."""


EncoderWrapper = Callable[["Route", type[object], Encoder[object]], Encoder[object]]
"""Wraps the encoder of a response of this class, for a route."""


class Governor(Protocol):
    """Replaces the handler of an API while client quotas are set, so that its requests are counted and throttled."""

    def governed(self, route: Route, handle: Handler) -> Handler:
        """A handler to use for all requests of the route, in place of `handle`."""


class Route:
    """One API of a listener. Codecs are compiled, and `bind` is called, at first use."""

    __slots__ = (
        "_bind",
        "_binding",
        "_governor",
        "decoders",
        "encoder_wrapper",
        "encoders",
        "errors",
        "first_version",
        "flexible_from",
        "handle",
        "hook",
        "is_advertised",
        "is_forwardable",
        "is_governed",
        "key",
        "last_version",
        "name",
        "reply_flexible_from",
        "requests",
        "short_decoders",
        "times",
    )

    def __init__(
        self,
        key: int,
        name: str,
        first_version: int,
        last_version: int,
        bind: Callable[[], Binding],
        *,
        is_advertised: bool = True,
        is_forwardable: bool = False,
    ) -> None:
        self.key = key
        self.name = name
        self.first_version = first_version
        self.last_version = last_version
        self.is_advertised = is_advertised
        """Whether ApiVersions lists the API."""
        self.is_forwardable = is_forwardable
        """Whether the request may arrive in an Envelope."""
        self.requests = 0
        """The number of requests served, for the metrics."""
        self.errors: dict[int, int] = {}
        """The number of refusals by error code, if they are counted."""
        self.encoder_wrapper: EncoderWrapper | None = None
        """Wraps the encoders so that errors in replies are counted, on a node that serves metrics; None on other nodes.
        """
        self.is_governed = False
        """Whether client quotas are set: then no frame is passed to a hook."""
        self.decoders: dict[int, Decoder[object]] = {}
        self.short_decoders: dict[int, Decoder[object]] = {}
        self.encoders: dict[int, Encoder[object]] = {}
        self.flexible_from = 0
        """The first version in which the request header ends with a tagged section."""
        self.reply_flexible_from = 0
        self.handle: Handler = _not_bound
        self.times = NO_TIMES
        """The times of the requests, once there is one."""
        self.hook: HookMaker | None = None
        self._bind = bind
        self._binding: Binding | None = None
        self._governor: Governor | None = None

    def govern(self, governor: Governor | None) -> None:
        """Let the governor count and throttle all further requests; None ends this."""
        self._governor = governor
        if self._binding is not None:
            self._serve(self._binding)

    def wrap_encoders(self, wrapper: EncoderWrapper) -> None:
        """Wrap the encoders of the versions that are used from now on."""
        self.encoder_wrapper = wrapper

    def load(self, version: int) -> Decoder[object] | None:
        """Compile the codecs of a version at its first use. Returns the decoder; None if the version is not served."""
        if not self.first_version <= version <= self.last_version:
            return None
        binding = self._bound()
        decoder = self.decoders[version] = _bounded(
            request_decoder_of(binding.request_class, version), binding.decoded_size_max
        )
        response_class, wrapper = binding.response_class, self.encoder_wrapper
        encoder = encoder_of(response_class, version)
        if wrapper is not None:
            encoder = wrapper(self, response_class, encoder)
        if binding.version_encoder is not None:
            encoder = binding.version_encoder(version, encoder)
        self.encoders[version] = encoder
        return decoder

    def decode_short(self, version: int, frame: memoryview, position: int) -> object:
        """Decode a request whose version is served. Raises `LongMessage` if that would take long."""
        decoder = self.short_decoders.get(version)
        if decoder is None:
            binding = self._bound()
            decoder = _bounded(short_decoder_of(binding.request_class, version), binding.decoded_size_max)
            self.short_decoders[version] = decoder
        request, _ = decoder(frame, position)
        return request

    def unserved_version(self) -> object | None:
        """The response to a request in a version that is not served; it is encoded in the first version of the API.

        None if the API has no such response: the connection then ends.
        """
        refuse = self._bound().refuse_version
        if refuse is None:
            return None
        if self.first_version not in self.encoders:
            self.load(self.first_version)
        return refuse(self)

    def with_handler(self, handle: Handler, decoded_size_max: int) -> Route:
        """A route of the same API and versions with another handler. A request in a frame of more than
        `decoded_size_max` bytes is not decoded: the handler gets None in its place.
        """

        def bind() -> Binding:
            binding = self._bound()
            return Binding(binding.request_class, binding.response_class, handle, decoded_size_max=decoded_size_max)

        return Route(self.key, self.name, self.first_version, self.last_version, bind)

    @property
    def response_class(self) -> type[object]:
        return self._bound().response_class

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes in a reply."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    def _bound(self) -> Binding:
        binding = self._binding
        if binding is None:
            binding = self._binding = self._bind()
            self.flexible_from = header_flexible_from(binding.request_class)
            self.reply_flexible_from = header_flexible_from(binding.response_class)
            self.hook = binding.hook
            self.times = RequestTimes(self.key)
            self._serve(binding)
        return binding

    def _serve(self, binding: Binding) -> None:
        """Set the handler of the requests."""
        self.is_governed = self._governor is not None
        self.handle = binding.handle if self._governor is None else self._governor.governed(self, binding.handle)


def _not_bound(context: RequestContext, request: object) -> object:
    raise AssertionError("a route handles requests once the codec of their version is loaded")


def _bounded(decoder: Decoder[object], size_max: int | None) -> Decoder[object]:
    """A decoder that yields None for a frame of more than `size_max` bytes, without reading it; `decoder` itself if
    there is no bound.
    """
    if size_max is None:
        return decoder

    def decode(frame: BytesLike, position: int) -> tuple[object, int]:
        return (None, len(frame)) if len(frame) > size_max else decoder(frame, position)

    return decode


class RawTokens(FrameHook):
    """Handles every frame of a connection as one message of its SASL exchange. After SaslHandshake version 0 the frames
    have no request header.
    """

    def __init__(self, handle: Callable[[bytes], bytes | None]) -> None:
        """`handle` handles a message and returns the message to answer with; None if there is no answer."""
        super().__init__(Route(SASL_AUTHENTICATE_KEY, "SaslAuthenticate", 0, 0, _without_header))
        self._handle = handle

    def answer(self, connection: ClientConnection, frame: memoryview) -> bytes | tuple[RequestContext, object] | None:
        message = self._handle(bytes(frame))
        return b"" if message is None else _SIZE(len(message)) + message

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        raise AssertionError("a frame without a header is not a request")


def _without_header() -> Binding:
    raise AssertionError("a message without a header has no route")
