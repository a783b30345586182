"""The declaration of an API: its request, its handlers, the permissions that a client needs, and how long lists are
handled.

It stands in the module of the handler, as `API = Api(FooRequest, broker=handle, needs=…)`. Its key, name and versions
are those of the request, as `protocol/messages/` declares it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from moldau.broker.apis.lists import AtMost, OnePass, bounded_handler
from moldau.broker.apis.needs import Rule, controller_asks, guarded_handler
from moldau.broker.apis.parts import PartRules, handler_in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import FrameHook, Handler, ListenerRole, RequestContext, Route, RouteBinding
from moldau.broker.runtime.pending import Pending
from moldau.protocol.compiler import Encoder
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, Chunk
from moldau.protocol.schema import fields_of, key_of, response_class_of, spec_of

Request = TypeVar("Request")
Handle = Callable[[Services, RequestContext, Request], object]
"""A handler. It returns the response, a `Pending` of the response, or None if the client expects no response."""
MakeHook = Callable[[Services, Route], FrameHook]
RefuseVersion = Callable[[Route], object]
Wrap = Callable[[Handler], Handler]
ErrorsBefore = Mapping[int, Mapping[ErrorCode, ErrorCode]]
FENCED: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
ABORTABLE: Final = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
"""Errors of transactions that older clients do not know, with the errors that these clients get instead."""


def forward(services: Services, context: RequestContext, request: object) -> Pending[object]:
    """Handle a request by forwarding it to the active controller, whose response is the reply."""
    return services.controller.ask(request, context)


def forward_for_partitions(services: Services, context: RequestContext, request: object) -> Pending[object]:
    """Handle a request that creates partitions by forwarding it to the active controller. The reply is the controller's
    response, sent once this broker has created its replicas of the new partitions."""
    return services.controller.ask_for_partitions(request, context)


class Listeners(NamedTuple):
    """The listeners that serve an API, and what brokers do with its requests."""

    role: ListenerRole
    """The roles of the listeners: those of brokers, of controllers, or both."""
    is_forwardable: bool = False
    """Whether brokers forward the request, in an Envelope."""
    is_advertised: bool = True
    """Whether ApiVersions lists the API."""


AT_BROKERS: Final = Listeners(ListenerRole.BROKER)


@dataclass(frozen=True, slots=True, eq=False)
class Api(Generic[Request]):
    """An API of the Kafka protocol as this node serves it: its request class, its handlers, and the rules that apply to
    its requests. mypy reports a handler that does not take this request class."""

    request: type[Request]
    broker: Handle[Request] | None = None
    """The handler at broker listeners; None if these do not serve the API."""
    controller: Handle[Request] | None = None
    """The handler at controller listeners; None if these do not serve the API."""
    needs: Rule = controller_asks
    """The rule that decides whether a client may send the request. If a broker forwards it, the controller applies the
    rule."""
    broker_needs: Rule | None = None
    """The rule that broker listeners apply instead of `needs`; None if it is `needs`."""
    lists: Sequence[PartRules | AtMost | OnePass] = ()
    """How each list of the request is handled, so that a long one does not hold the event loop: by `in_parts`,
    `at_most` or `one_pass`."""
    hook: MakeHook | None = None
    """Makes the hook that may answer the frames of a connection before they are decoded; None if there is no hook."""
    refuse_version: RefuseVersion | None = None
    """Makes the response to a version that is not served; if None, such a request closes its connection."""
    errors_before: ErrorsBefore = field(default_factory=dict)
    """By version of the request: the errors that clients of earlier versions do not know, each with the error that
    these clients get instead. Handlers always use the newest errors."""
    is_shared: bool = False
    """Whether the handler returns the same response object for many requests, so that it is encoded only once."""
    listeners: Listeners = AT_BROKERS
    """The listeners that serve the API. The catalogue sets them."""

    @property
    def key(self) -> int:
        return key_of(self.request)

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def first(self) -> int:
        """The lowest version that is served: the first one that the message declares."""
        return spec_of(self.request).versions.first

    @property
    def last(self) -> int:
        return spec_of(self.request).versions.last

    @property
    def parts(self) -> PartRules | None:
        """How a long list of the request is cut into parts; None if no list is cut."""
        return next((each for each in self.lists if isinstance(each, PartRules)), None)

    @property
    def bounds(self) -> Mapping[str, int]:
        """The maximum number of elements of each list that is not cut into parts, by the path of the list."""
        bounds = [each for each in self.lists if isinstance(each, AtMost)]
        return {path: each.most for each in bounds for path in each.paths or list_paths(self.request)}

    @property
    def one_pass(self) -> Mapping[str, str]:
        """For each list that is handled whole in one short pass, by its path: a description of the pass."""
        return {path: each.what for each in self.lists if isinstance(each, OnePass) for path in each.paths}

    def treatment(self, path: str) -> str:
        """Describe what keeps a long list at this path from holding the event loop; empty if nothing does."""
        texts = []
        plan = self.parts
        if plan is not None and any(f"{each.request}.".startswith(f"{path}.") for each in plan.lists):
            from_text = f", for more than {plan.long_from}" if plan.long_from else ""
            texts.append(f"parts of {plan.size}{from_text}")
        if path in self.bounds:
            texts.append(f"at most {self.bounds[path]}")
        if path in self.one_pass:
            texts.append(f"one pass: {self.one_pass[path]}")
        assert len(texts) <= 1, f"{self.name}.{path} has several treatments"
        return "".join(texts)

    def rule_of(self, role: ListenerRole) -> Rule:
        """The rule that listeners of this role apply before the handler: it checks the client's permissions."""
        if role is ListenerRole.CONTROLLER:
            return self.needs
        if self.broker_needs is not None:
            return self.broker_needs
        return controller_asks if self.listeners.is_forwardable else self.needs


def bind(
    find: Callable[[], Api[Any]], role: ListenerRole, services: Services, *, is_guarded: bool, wrap: Wrap | None
) -> RouteBinding:
    """Make the `RouteBinding` that the route of an API needs at its first request. `find` imports the module of the
    API, and returns the API's declaration.
    """
    api = find()
    handle = api.broker if role is ListenerRole.BROKER else api.controller
    assert handle is not None, f"{api.name} is not served behind a listener of this role"
    answer: Handler = partial(handle, services)
    if is_guarded:
        answer = guarded_handler(api.rule_of(role), role, services, answer)
    parts, bounds = api.parts, api.bounds
    if bounds:
        answer = bounded_handler(bounds, answer, is_cut=parts is not None)
    if parts is not None:
        answer = handler_in_parts(parts, lambda: services.long_requests, answer)
    if wrap is not None:
        answer = wrap(answer)
    return RouteBinding(
        api.request,
        response_class_of(api.request),
        answer,
        None if api.hook is None or wrap is not None else partial(api.hook, services),
        api.refuse_version,
        version_encoder=shared_encoder
        if api.is_shared
        else partial(known_errors_encoder, api)
        if api.errors_before
        else None,
    )


def shared_encoder(version: int, encode: Encoder[object]) -> Encoder[object]:
    """Make an encoder that keeps the bytes of its last response, and returns them if it gets the same object again."""
    last: object = None
    encoded = b""

    def encode_once(response: object, out: list[Chunk]) -> None:
        nonlocal last, encoded
        if response is not last:
            pieces: list[Chunk] = []
            encode(response, pieces)
            last, encoded = response, b"".join(cast("list[BytesLike]", pieces))
        out.append(encoded)

    return encode_once


# The errors of older versions


def known_errors_encoder(api: Api[Any], version: int, encode: Encoder[object]) -> Encoder[object]:
    """Make an encoder that first replaces the errors in a response that clients of this version do not know."""
    older: dict[ErrorCode, ErrorCode] = {}
    for first, errors in api.errors_before.items():
        if version < first:
            older.update(errors)
    if not older:
        return encode
    replace = error_replacement(response_class_of(api.request), older)
    assert replace is not None, f"{api.name} has no errors in its response"

    def encode_known(response: object, out: list[Chunk]) -> None:
        replace(response)
        encode(response, out)

    return encode_known


def error_replacement(cls: type[object], older: Mapping[ErrorCode, ErrorCode]) -> Callable[[object], None] | None:
    """Make a function that replaces error codes in a response of this class; None if the class has no error codes."""
    codes = [field.name for field in fields_of(cls) if field.name.endswith("error_code")]
    inner = [
        (field.name, field.is_array, deeper)
        for field in fields_of(cls)
        if field.struct is not None and (deeper := error_replacement(field.struct, older)) is not None
    ]
    if not codes and not inner:
        return None

    def replace(value: object) -> None:
        for name in codes:
            if (code := getattr(value, name)) in older:
                setattr(value, name, older[code])
        for name, is_array, deeper in inner:
            found = getattr(value, name)
            for each in found or () if is_array else () if found is None else (found,):
                deeper(each)

    return replace


def list_paths(cls: type[object], prefix: str = "") -> Iterator[str]:
    """The paths of all lists in a message, the outer ones first."""
    for each in fields_of(cls):
        if each.is_array:
            yield prefix + each.name
        if each.struct is not None:
            yield from list_paths(each.struct, f"{prefix}{each.name}.")
