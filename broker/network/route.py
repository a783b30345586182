"""A route: one API as a listener serves it. It decodes a request by its version, calls the handler, and encodes the
response.

    raw frame ──▶ FrameHook.answer ──▶ reply frame             only if a hook has learned from earlier requests
        │ not one of these
        ▼
    decoders[version] ──▶ handle(context, request) ──▶ encoders[version]

The connection does not depend on any API: everything that is specific to an API is in its route.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Flag
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

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
"""Makes the encoder for a version of the response, from the version and the encoder of the response class."""


class ListenerRole(Flag):
    """The role in which a listener serves APIs: for the broker or for the controller of its node.

    An API is served by listeners of one role, or of both.
    """

    BROKER = 0b01
    CONTROLLER = 0b10
    BOTH = 0b11


def role_of(listener_name: str, config: Config) -> ListenerRole:
    """The role of a listener with this name."""
    return ListenerRole.CONTROLLER if listener_name in config.controller_listener_names else ListenerRole.BROKER


class ServingListener(Protocol):
    """The part of a listener that handlers use."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> ListenerRole: ...

    @property
    def routes(self) -> Mapping[int, Route]:
        """The routes by API key."""

    def access_of(self, principal: Principal, client_host: str) -> Access:
        """The permissions of a principal on whose behalf a broker has forwarded a request."""


class Authentication(Protocol):
    """The SASL exchange of a connection, as request handlers use it."""

    def handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> object:
        """The response to SaslHandshake, or a `Pending` that completes with it."""

    def authenticate(self, context: RequestContext, request: SaslAuthenticateRequest) -> object:
        """The response to SaslAuthenticate, or a `Pending` that completes with it."""

    def closed(self) -> None:
        """Note that the connection is closed."""


class ClientConnection(Protocol):
    """The part of a connection that request handlers use."""

    client_host: str
    client_port: int
    software: tuple[str, str]
    """The name and version of the client's library, from its ApiVersions request."""
    served: dict[tuple[str | bytes, int], int]
    """For each partition, the fetch offset of the last Fetch of this connection that returned records of it. If the
    same offset was fetched twice in a row, it is stored as ~offset, because the client may have refused damaged
    records.
    """
    heartbeat_broker_id: int
    """The id of the broker whose heartbeats come through this connection; -1 for none."""
    is_of_follower: bool
    """Whether a broker that is allowed to replicate has fetched through this connection."""
    on_lost: Callable[[], None] | None
    """The function that is called when the connection is lost or closed; None if nothing depends on the connection."""

    access: Access
    """The permissions of the client's principal."""
    authentication: Authentication | None
    """The SASL exchange; None if the listener has none."""

    @property
    def listener(self) -> ServingListener: ...

    def close(self, reason: str) -> None:
        """Close the connection; replies that are ready are still sent."""

    def sends_files(self) -> bool:
        """Whether a reply may hold slices of files instead of bytes. Once true, the result stays true."""

    def hold(self) -> None:
        """Handle no further request of this connection until the work passed to `hold_during` has ended."""

    def throttle(self, delay_ms: int) -> None:
        """Mute the connection for `delay_ms`: it reads and handles no requests, but still sends replies."""

    def hold_during(self, work: Coroutine[object, object, None]) -> Coroutine[object, object, None]:
        """Run `work`, then handle the requests that arrived meanwhile."""


class RequestContext:
    """The context of a request that a handler gets: the request header, the connection and the client. It also has the
    times of the request.
    """

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
        """What the response waited for (`broker/runtime/pending.py`)."""
        self.request: object = None
        self.request_size = self.response_size = 0
        self.end_position = 0
        """The position at which the reply ends, in bytes since the beginning of the connection's output."""
        self.is_long = False
        """Whether an executor thread encodes the response, because it has too many elements for the event loop."""
        self.is_part = False
        """Whether the message given to the handler is one part of a long request."""
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
        """The permissions of the client."""
        return self.connection.access

    @property
    def principal(self) -> Principal:
        """The authenticated principal of the client."""
        return self.connection.access.principal


Handler = Callable[[RequestContext, object], object]
"""Handles a request. Returns the response, a `Pending` that completes with it, or None if the client expects no
response.
"""


FrameAnswer: TypeAlias = "bytes | tuple[RequestContext, object]"
"""The whole reply frame; or, if the hook has handled the request but cannot write its reply, the context and what the
handler returned.
"""


class FrameHook(ABC):
    """Answers frames of one connection without decoding them, with what it has learned from earlier requests.

    It is a base class rather than a Protocol, so that compiled code calls it without looking up a name.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self.client_id: str | None = None
        """The client id of the last request that the hook learned from."""

    def partitions(self) -> list[str]:
        """The partitions (topic-index) of the frames that the hook answers, for the log of slow requests."""
        return []

    @abstractmethod
    def answer(self, connection: ClientConnection, frame: memoryview) -> FrameAnswer | None:
        """Answer a frame. Returns None if the frame has to be decoded and handled normally."""

    def answer_run(
        self, connection: ClientConnection, received: memoryview, frame_size_max: int
    ) -> list[tuple[memoryview, FrameAnswer]]:
        """Answer several frames at the beginning of `received` together. Each frame follows its size, and has at most
        `frame_size_max` bytes. Returns the frames with their answers, as `answer` would give them. The list is empty if
        the first frame has to be handled alone.
        """
        return []

    def context_of(self, connection: ClientConnection, frame: memoryview) -> RequestContext:
        """The context of a frame that the hook answered. If the frame has no header, version and correlation id are
        0.
        """
        return RequestContext(connection, self.route, 0, 0, self.client_id)

    @abstractmethod
    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        """Learn from a request that was decoded and handled; `frame` is its frame.

        Returns whether `answer` is to be tried for the next frame.
        """


HookMaker = Callable[["Route"], FrameHook]


class RouteBinding:
    """What a route needs to serve requests: the handler, the message classes and the maker of hooks. It is made at the
    first request, so that a start imports no handlers.
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
        """`hook` makes the frame hook of a connection. If a frame has more than `decoded_size_max` bytes, the handler
        gets None in place of the request.

        `refuse_version` makes the response to a request in a version that is not served. The response is encoded in the
        first version of the API. Without `refuse_version` such a request ends its connection.
        """
        self.request_class = request_class
        self.response_class = response_class
        self.handle = handle
        self.hook = hook
        self.refuse_version = refuse_version
        self.decoded_size_max = decoded_size_max
        self.version_encoder = version_encoder
        """Makes the encoder of a version; None if every version is encoded by the encoder of the response class."""


EncoderWrapper = Callable[["Route", type[object], Encoder[object]], Encoder[object]]
"""Wraps an encoder: gets the route, the response class and the encoder of that class."""


class QuotaGovernor(Protocol):
    """Wraps the request handlers of routes while client quotas are set, so that requests are counted and throttled."""

    def governed(self, route: Route, handle: Handler) -> Handler:
        """The handler that the route uses in place of `handle`."""


class Route:
    """One API of a listener. `bind` is called, and codecs are compiled, at the first use."""

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
        bind: Callable[[], RouteBinding],
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
        """Whether a broker may forward the request to a controller in an Envelope."""
        self.requests = 0
        """The number of requests served."""
        self.errors: dict[int, int] = {}
        """The number of errors in replies, by error code, if errors are counted."""
        self.encoder_wrapper: EncoderWrapper | None = None
        """Wraps the encoders so that errors in replies are counted; None on a node without metrics."""
        self.is_governed = False
        """Whether client quotas are set, so that no frame is passed to a hook."""
        self.decoders: dict[int, Decoder[object]] = {}
        self.short_decoders: dict[int, Decoder[object]] = {}
        self.encoders: dict[int, Encoder[object]] = {}
        self.flexible_from = 0
        """The first version in which the request header has tagged fields."""
        self.reply_flexible_from = 0
        self.handle: Handler = _not_bound
        self.times = NO_TIMES
        """The times of the requests; `NO_TIMES` before the first request."""
        self.hook: HookMaker | None = None
        self._bind = bind
        self._binding: RouteBinding | None = None
        self._governor: QuotaGovernor | None = None

    def govern(self, governor: QuotaGovernor | None) -> None:
        """Let `governor` count and throttle all further requests; None for no quotas."""
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
        """Decode a request in a version that is served. Raises `LongMessage` if decoding would take too long for the
        event loop.
        """
        decoder = self.short_decoders.get(version)
        if decoder is None:
            binding = self._bound()
            decoder = _bounded(short_decoder_of(binding.request_class, version), binding.decoded_size_max)
            self.short_decoders[version] = decoder
        request, _ = decoder(frame, position)
        return request

    def unserved_version(self) -> object | None:
        """The response to a request in a version that is not served, to be encoded in the first version of the API.

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

        def bind() -> RouteBinding:
            binding = self._bound()
            return RouteBinding(
                binding.request_class, binding.response_class, handle, decoded_size_max=decoded_size_max
            )

        return Route(self.key, self.name, self.first_version, self.last_version, bind)

    @property
    def response_class(self) -> type[object]:
        return self._bound().response_class

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes in a reply."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    def _bound(self) -> RouteBinding:
        binding = self._binding
        if binding is None:
            binding = self._binding = self._bind()
            self.flexible_from = header_flexible_from(binding.request_class)
            self.reply_flexible_from = header_flexible_from(binding.response_class)
            self.hook = binding.hook
            self.times = RequestTimes(self.key)
            self._serve(binding)
        return binding

    def _serve(self, binding: RouteBinding) -> None:
        """Set `handle` to the handler of the binding, or to the one that the governor makes of it."""
        self.is_governed = self._governor is not None
        self.handle = binding.handle if self._governor is None else self._governor.governed(self, binding.handle)


def _not_bound(context: RequestContext, request: object) -> object:
    raise AssertionError("a route handles requests once the codec of their version is loaded")


def _bounded(decoder: Decoder[object], size_max: int | None) -> Decoder[object]:
    """Make a decoder that does not decode a frame of more than `size_max` bytes, and returns None instead. If
    `size_max` is None, the result is `decoder` itself.
    """
    if size_max is None:
        return decoder

    def decode(frame: BytesLike, position: int) -> tuple[object, int]:
        return (None, len(frame)) if len(frame) > size_max else decoder(frame, position)

    return decode


class RawSaslHook(FrameHook):
    """The frame hook for SASL messages without a request header, which follow SaslHandshake version 0: every frame is
    one message of the mechanism.
    """

    def __init__(self, handle: Callable[[bytes], bytes | None]) -> None:
        """`handle` handles a message and returns the message to answer with; None if the login failed."""
        super().__init__(Route(SASL_AUTHENTICATE_KEY, "SaslAuthenticate", 0, 0, _without_header))
        self._handle = handle

    def answer(self, connection: ClientConnection, frame: memoryview) -> FrameAnswer | None:
        message = self._handle(bytes(frame))
        return b"" if message is None else _SIZE(len(message)) + message

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        raise AssertionError("a frame without a header is not a request")


def _without_header() -> RouteBinding:
    raise AssertionError("a message without a header has no route")
