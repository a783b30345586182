"""One row of the table of APIs: the request, its handlers, its rule of authorization, and the treatment of its lists.

request class ──▶ key, name, versions           as it is declared in `protocol/messages/`
broker, controller                               the handler behind listeners of either role
rule, broker_rule                                the permissions that a client needs
parts, bounds, one_pass                          how long lists of the request are handled
errors_before                                    the errors that clients of older versions do not know
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Never, TypeVar, cast

from moldau.broker.network.route import Binding, FrameHook, Handler, ListenerRole, RequestContext, Route
from moldau.broker.requests import authorization
from moldau.broker.requests.list_bounds import bounded
from moldau.broker.requests.parts import Parts, in_parts
from moldau.broker.requests.services import Services
from moldau.protocol.compiler import Encoder
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, Chunk
from moldau.protocol.schema import fields_of, response_class_of, spec_of
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.requests.authorization.rule import Rule

Request = TypeVar("Request")
Handle = Callable[[Services, RequestContext, Request], object]
"""Handles a request with the services of the node. Returns the response, a `Pending` that becomes it, or None."""
FindHandle = Callable[[], Handle[Request]]
"""Returns the handler, and imports its module before: at the first request of the API."""
FindRule = Callable[[], "Rule"]
"""Returns the authorization rule, and imports its module before."""
MakeHook = Callable[[Services, Route], FrameHook]
RefuseVersion = Callable[[Route], object]
Wrap = Callable[["Api", ListenerRole, Services, Handler], Handler]
"""Wraps the handler of an API."""
ErrorsBefore = Mapping[int, Mapping[ErrorCode, ErrorCode]]


NONE: Final[Mapping[str, Never]] = MappingProxyType({})
NO_ERRORS: Final[ErrorsBefore] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One row of the table of APIs. Made by `api`, which checks that handlers take the request of the row."""

    request: type[object]
    broker: FindHandle[object] | None
    """The handler at listeners of brokers; None where these do not serve the API."""
    controller: FindHandle[object] | None
    """The handler at listeners of controllers; None where these do not serve the API."""
    rule: FindRule
    """Decides whether a client may send the request. A broker does not ask it where it forwards the request."""
    broker_rule: FindRule | None
    """The rule at listeners of brokers, where that is another one."""
    parts: Parts | None
    """How a request with a long list is cut; None where no list is cut."""
    bounds: Mapping[str, int]
    """The most elements of lists that are handled whole, by path, the outer list first. DIVERGES: a request with more
    is refused with INVALID_REQUEST; Apache Kafka has no such limits.
    """
    one_pass: Mapping[str, str]
    """Lists that are handled whole in one short pass, with what that is: 100,000 elements take less than 20 ms."""
    is_advertised: bool
    """Whether ApiVersions lists the API."""
    is_forwardable: bool
    """Whether the request may arrive in an Envelope at a controller."""
    hook: MakeHook | None
    """Makes the hook that may answer frames of a connection before they are decoded."""
    refuse_version: Callable[[], RefuseVersion] | None
    """Makes the response to a version that is not served; without it such a request ends its connection."""
    errors_before: ErrorsBefore
    """By version of the request: errors that clients of earlier versions do not know, each with the error that is sent
    to these in its place. Handlers answer every version with the newest error.
    """
    is_shared: bool
    """Whether the handler gives many requests one response object, which is then encoded once."""

    @property
    def key(self) -> int:
        key = spec_of(self.request).key
        assert key is not None, f"{self.request.__name__} is declared without an API key"
        return key

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

    def rule_of(self, role: ListenerRole) -> Rule:
        """The rule behind listeners of this role."""
        if role is ListenerRole.CONTROLLER:
            return self.rule()
        if self.broker_rule is not None:
            return self.broker_rule()
        return authorization.rule.controller_asks if self.is_forwardable else self.rule()

    @property
    def role(self) -> ListenerRole:
        """The roles of the listeners that serve the API."""
        if self.broker is None:
            return ListenerRole.CONTROLLER
        return ListenerRole.BROKER if self.controller is None else ListenerRole.BOTH


def api(
    request: type[Request],
    *,
    broker: FindHandle[Request] | None = None,
    controller: FindHandle[Request] | None = None,
    rule: FindRule,
    broker_rule: FindRule | None = None,
    parts: Parts | None = None,
    bounds: Mapping[str, int] = NONE,
    one_pass: Mapping[str, str] = NONE,
    is_advertised: bool = True,
    is_forwardable: bool = False,
    hook: MakeHook | None = None,
    refuse_version: Callable[[], RefuseVersion] | None = None,
    errors_before: ErrorsBefore = NO_ERRORS,
    is_shared: bool = False,
) -> Api:
    """Make the row of an API. mypy reports a handler that takes another request than that of the row."""
    assert broker is not None or controller is not None, f"{request.__name__} has no handler"
    return Api(
        request,
        cast("FindHandle[object] | None", broker),
        cast("FindHandle[object] | None", controller),
        rule,
        broker_rule,
        parts,
        bounds,
        one_pass,
        is_advertised,
        is_forwardable,
        hook,
        refuse_version,
        errors_before,
        is_shared,
    )


def open_to_all() -> Rule:
    """No permission is needed."""
    return authorization.rule.open_to_all


def handler_asks() -> Rule:
    """The handler asks the ACLs."""
    return authorization.rule.handler_asks


def on_cluster(operation: AclOperation) -> FindRule:
    """The operation is needed on the cluster."""
    return lambda: authorization.rule.on_cluster(operation)


def route(
    row: Api, role: ListenerRole, services: Services, *, is_guarded: bool = False, wrap: Wrap | None = None
) -> Route:
    """The route by which listeners of this role serve the API of a row. `is_guarded`: the node has an authorizer, so
    the authorization rule of the API runs before its handler. `wrap`: wraps the handler; no hook answers frames then.
    """
    return Route(
        row.key,
        row.name,
        row.first,
        row.last,
        partial(_bind, row, role, services, is_guarded=is_guarded, wrap=wrap),
        is_advertised=row.is_advertised,
        is_forwardable=row.is_forwardable,
    )


def _bind(row: Api, role: ListenerRole, services: Services, *, is_guarded: bool, wrap: Wrap | None) -> Binding:
    find = row.broker if role is ListenerRole.BROKER else row.controller
    assert find is not None, f"{row.name} is not served behind a listener of this role"
    answer: Handler = partial(find(), services)
    if is_guarded:
        from moldau.broker.requests.authorization.rule import guarded

        answer = guarded(row.rule_of(role), role, services, answer)
    if row.bounds:
        answer = bounded(row.bounds, answer, is_cut=row.parts is not None)
    if row.parts is not None:
        answer = in_parts(row.parts, lambda: services.long_requests, answer)
    if wrap is not None:
        answer = wrap(row, role, services, answer)
    return Binding(
        row.request,
        response_class_of(row.request),
        answer,
        None if row.hook is None or wrap is not None else partial(row.hook, services),
        None if row.refuse_version is None else row.refuse_version(),
        version_encoder=shared_encoder
        if row.is_shared
        else partial(with_known_errors, row)
        if row.errors_before
        else None,
    )


def shared_encoder(version: int, encode: Encoder[object]) -> Encoder[object]:
    """An encoder that encodes a response once while the handler answers with that same object."""
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


def with_known_errors(row: Api, version: int, encode: Encoder[object]) -> Encoder[object]:
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
    """A function that replaces error codes in a response of this class; None where it has none."""
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


# The lists of all requests


class ListOfRequest(NamedTuple):
    """A list in the requests of an API, and what keeps the event loop free where it is long."""

    api: str
    path: str
    treatment: str
    """Empty where the row of the API does not name the list."""


def lists_of_requests(apis: Iterable[Api]) -> Iterator[ListOfRequest]:
    """Every list in the declarations of the requests."""
    for row in apis:
        for path in list_paths(row.request):
            yield ListOfRequest(row.name, path, treatment(row, path))


def list_paths(cls: type[object], prefix: str = "") -> Iterator[str]:
    """The paths of all lists in a message, the outer ones first."""
    for field in fields_of(cls):
        if field.is_array:
            yield prefix + field.name
        if field.struct is not None:
            yield from list_paths(field.struct, f"{prefix}{field.name}.")


def treatment(row: Api, path: str) -> str:
    """What a row of the table of APIs says of a list; empty where that is nothing."""
    texts = []
    plan = row.parts
    if plan is not None and any(f"{each.request}.".startswith(f"{path}.") for each in plan.lists):
        from_text = f", for more than {plan.long_from}" if plan.long_from else ""
        texts.append(f"parts of {plan.size}{from_text}")
    if path in row.bounds:
        texts.append(f"at most {row.bounds[path]}")
    if path in row.one_pass:
        texts.append(f"one pass: {row.one_pass[path]}")
    assert len(texts) <= 1, f"{row.name}.{path} has several treatments"
    return "".join(texts)
