"""What an API is: a request, its handlers, what a client needs, and the treatment of its lists.

It is declared beside its handler, as `API = Api(FooRequest, broker=handle, needs=…)`. Its key, its name and its
versions are those of the request, as it is declared in `protocol/messages/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from moldau.broker.apis.lists import AtMost, OnePass, bounded
from moldau.broker.apis.needs import Rule, controller_asks, guarded
from moldau.broker.apis.parts import Parts, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import Binding, FrameHook, Handler, ListenerRole, RequestContext, Route
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
"""Errors of transactions that older clients do not know, each with the error that these clients get instead."""


def forward(services: Services, context: RequestContext, request: object) -> Pending[object]:
    """The handler of an API that the active controller decides: the response of that controller is the reply."""
    return services.controller.ask(request, context)


def forward_for_partitions(services: Services, context: RequestContext, request: object) -> Pending[object]:
    """The handler of brokers for an API that creates partitions. The active controller's response is the reply, once
    this broker has created its replicas of the new partitions.
    """
    return services.controller.ask_for_partitions(request, context)


class Listeners(NamedTuple):
    """The listeners that serve an API, as the catalogue says."""

    role: ListenerRole
    """The roles of the listeners."""
    is_forwardable: bool = False
    """Whether brokers forward the request, in an Envelope."""
    is_advertised: bool = True
    """Whether ApiVersions lists the API."""


AT_BROKERS: Final = Listeners(ListenerRole.BROKER)


@dataclass(frozen=True, slots=True, eq=False)
class Api(Generic[Request]):
    """One API. mypy reports a handler that takes another request."""

    request: type[Request]
    broker: Handle[Request] | None = None
    """The handler at listeners of brokers; None if these do not serve the API."""
    controller: Handle[Request] | None = None
    """The handler at listeners of controllers; None if these do not serve the API."""
    needs: Rule = controller_asks
    """Decides whether a client may send the request. If a broker forwards it, only the controller decides this."""
    broker_needs: Rule | None = None
    """The rule that listeners of brokers apply instead of `needs`; None if they have no rule of their own."""
    lists: Sequence[Parts | AtMost | OnePass] = ()
    """What keeps the event loop free if a list of the request is long: `cut`, `at_most` or `one_pass` for each list."""
    hook: MakeHook | None = None
    """Makes the hook that may answer frames of a connection before they are decoded."""
    refuse_version: RefuseVersion | None = None
    """Makes the response to a version that is not served; without it such a request ends its connection."""
    errors_before: ErrorsBefore = field(default_factory=dict)
    """For a version of the request: the errors that clients of earlier versions do not know, each with the error that
    these clients get instead. Handlers answer every version with the newest error.
    """
    is_shared: bool = False
    """Whether the handler gives many requests one response object, which is then encoded once."""
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
        """The lowest version that is served: the first that the message declares."""
        return spec_of(self.request).versions.first

    @property
    def last(self) -> int:
        return spec_of(self.request).versions.last

    @property
    def parts(self) -> Parts | None:
        """How a request with a long list is cut into parts; None if no list of the request is cut."""
        return next((each for each in self.lists if isinstance(each, Parts)), None)

    @property
    def bounds(self) -> Mapping[str, int]:
        """The maximal number of elements of each list that is handled whole, by the path of the list."""
        bounds = [each for each in self.lists if isinstance(each, AtMost)]
        return {path: each.most for each in bounds for path in each.paths or list_paths(self.request)}

    @property
    def one_pass(self) -> Mapping[str, str]:
        """What is done in one short pass over a list that is handled whole, by the path of the list."""
        return {path: each.what for each in self.lists if isinstance(each, OnePass) for path in each.paths}

    def treatment(self, path: str) -> str:
        """What keeps a long list at this path from holding the event loop, as text; empty if nothing does."""
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
        """The rule behind listeners of this role."""
        if role is ListenerRole.CONTROLLER:
            return self.needs
        if self.broker_needs is not None:
            return self.broker_needs
        return controller_asks if self.listeners.is_forwardable else self.needs


def bind(
    find: Callable[[], Api[Any]], role: ListenerRole, services: Services, *, is_guarded: bool, wrap: Wrap | None
) -> Binding:
    """Return what a route needs at its first request. `find` imports the module of the API, and returns the API."""
    api = find()
    handle = api.broker if role is ListenerRole.BROKER else api.controller
    assert handle is not None, f"{api.name} is not served behind a listener of this role"
    answer: Handler = partial(handle, services)
    if is_guarded:
        answer = guarded(api.rule_of(role), role, services, answer)
    parts, bounds = api.parts, api.bounds
    if bounds:
        answer = bounded(bounds, answer, is_cut=parts is not None)
    if parts is not None:
        answer = in_parts(parts, lambda: services.long_requests, answer)
    if wrap is not None:
        answer = wrap(answer)
    return Binding(
        api.request,
        response_class_of(api.request),
        answer,
        None if api.hook is None or wrap is not None else partial(api.hook, services),
        api.refuse_version,
        version_encoder=shared_encoder
        if api.is_shared
        else partial(with_known_errors, api)
        if api.errors_before
        else None,
    )


def shared_encoder(version: int, encode: Encoder[object]) -> Encoder[object]:
    """An encoder that keeps the bytes of the last response, and encodes nothing if it gets the same object again."""
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


def with_known_errors(row: Api[Any], version: int, encode: Encoder[object]) -> Encoder[object]:
    """An encoder of responses that first replaces the errors that clients of this version do not know."""
    older: dict[ErrorCode, ErrorCode] = {}
    for first, errors in row.errors_before.items():
        if version < first:
            older.update(errors)
    if not older:
        return encode
    replace = error_replacement(response_class_of(row.request), older)
    assert replace is not None, f"{row.name} has no errors in its response"

    def encode_known(response: object, out: list[Chunk]) -> None:
        replace(response)
        encode(response, out)

    return encode_known


def error_replacement(cls: type[object], older: Mapping[ErrorCode, ErrorCode]) -> Callable[[object], None] | None:
    """A function that replaces error codes in a response of this class; None if the class has no error codes."""
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
