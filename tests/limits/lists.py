"""Long lists: each list of each request at 100,000 elements, by a user without rights, by a super user, and before
login; and at a controller's listener, from a node and in envelopes of a broker.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench.frames import request_frame
from moldau.broker.apis.api import Api
from moldau.broker.metadata.enveloping import ForwardedClient, enveloped_request
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.protocol.schema import Field, WireType, fields_in, fields_of
from moldau.security.principal import Principal
from tests.limits.stage import Stage
from tests.support.apis import APIS

COUNT = 100_000
GIVEN: dict[str, object] = {"max_bytes": 1 << 30, "partition_max_bytes": 1 << 20, "timeout_ms": 30_000, "acks": 1}
"""The values of fields for which 0 would end the work early."""
NUMBERS = {WireType.INT8: 127, WireType.INT16: 32_767, WireType.INT32: 2_000_000, WireType.INT64: 2_000_000}


class LongList(NamedTuple):
    """One list of a request: the fields from the request down to it, and the version in which it is sent."""

    request: type[object]
    path: tuple[str, ...]
    version: int

    @property
    def name(self) -> str:
        return f"{self.request.__name__.removesuffix('Request')}.{'.'.join(self.path)}"


def long_lists() -> Iterator[LongList]:
    """Every list that a client may send to a broker, in the last version that has it."""
    return _lists_of(row for row in APIS if row.broker is not None)


def controller_lists() -> Iterator[LongList]:
    """Every list that a node may send to a controller."""
    return _lists_of(row for row in APIS if row.controller is not None)


def enveloped_lists() -> Iterator[LongList]:
    """Every list that a client may send to a broker, and the broker to a controller in an Envelope."""
    return _lists_of(row for row in APIS if row.controller is not None and row.listeners.is_forwardable)


def _lists_of(rows: Iterable[Api[Any]]) -> Iterator[LongList]:
    for row in rows:
        for path, fields in paths_of(row.request):
            versions = [
                version
                for version in range(row.first, row.last + 1)
                if all(version in field.versions for field in fields)
            ]
            yield LongList(row.request, path, versions[-1])


def paths_of(
    cls: type[object], path: tuple[str, ...] = (), above: tuple[Field, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[Field, ...]]]:
    for field in fields_of(cls):
        if field.is_array:
            yield (*path, field.name), (*above, field)
        if field.struct is not None:
            yield from paths_of(field.struct, (*path, field.name), (*above, field))


def long_request(each: LongList, count: int = COUNT) -> object:
    """A request with so many elements in the list, and one element in each list above it."""
    return _filled(each.request, each.version, each.path, count)


def _filled(cls: type[object], version: int, path: Sequence[str], count: int, number: int = 0) -> object:
    plain, tagged, absent = fields_in(cls, version)
    values: dict[str, object] = {}
    for field in plain + tagged:
        on_path = path and field.name == path[0]
        if field.is_array:
            values[field.name] = _items(field, version, path[1:], count) if on_path else []
        elif on_path and field.struct is not None:
            values[field.name] = _filled(field.struct, version, path[1:], count)
        elif field.struct is not None:
            values[field.name] = (
                None if version in field.nullable or field.tag is not None else _filled(field.struct, version, (), 0)
            )
        else:
            values[field.name] = GIVEN.get(field.name, _value(field, number))
    result = cls.__new__(cls)
    for field in absent:
        setattr(result, field.name, [] if field.is_array else field.default)
    for name, value in values.items():
        setattr(result, name, value)
    return result


def _items(field: Field, version: int, path: Sequence[str], count: int) -> list[object]:
    if path:
        assert field.struct is not None
        return [_filled(field.struct, version, path, count)]
    if field.struct is not None:
        return [_filled(field.struct, version, (), 0, number) for number in range(count)]
    return [_value(field, number) for number in range(count)]


def _value(field: Field, number: int) -> object:
    match field.kind:
        case WireType.STRING:
            return f"{field.name[:3]}-{number}"
        case WireType.BYTES:
            return b""
        case WireType.RECORDS:
            return None
        case WireType.UUID:
            return number.to_bytes(16, "big")
        case WireType.BOOL:
            return False
        case WireType.FLOAT64:
            return 1.0
    assert isinstance(field.kind, WireType)
    return number % NUMBERS.get(field.kind, 127)


class Sender:
    """A connection on which one request at a time is sent; a user's, or one before login."""

    def __init__(self, port: int, user: str | None = None, timeout_s: float = 120.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        if user is not None:
            self.exchange(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
            self.exchange(request_frame(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-secret".encode()), 2))

    def exchange(self, frame: bytes) -> bytes | None:
        """The reply; None if the connection was closed."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(frame)
            if len(head := self._receive(4)) == 4:
                return self._receive(struct.unpack(">i", head)[0])
        return None

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            part = self._socket.recv_into(view[got:])
            if not part:
                return b""
            got += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


USER = "mallory"
SUPER_USER = "root"
HONEST_P99_MS_MAX = 20.0
"""How much the p99 of an honest produce may rise above that of an idle node."""
HONEST_SLOWEST_MS_MAX = 250.0
"""The longest that a single one may take: one step of the loop that is not cut takes longer."""
BASELINE_S = 3.0
BASELINE_COUNT = 250
"""Produces before the first list, less than those of `BASELINE_S`."""


def login_settings(port: int, controller_port: int, login_port: int) -> list[str]:
    """A listener with SASL, an authorizer, a super user and a user without rights. The honest client is anonymous."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{user}="{user}-secret"' for user in (USER, SUPER_USER))
    listeners = {"PLAINTEXT": port, "CONTROLLER": controller_port, "LOGIN": login_port}
    return [
        "listeners=" + ",".join(f"{name}://127.0.0.1:{each}" for name, each in listeners.items()),
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.login.plain.sasl.jaas.config={module} required {users};",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users=User:ANONYMOUS;User:{SUPER_USER}",
        "offsets.topic.num.partitions=2",
        "transaction.state.log.num.partitions=2",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]


def long_lists_before_login(stage: Stage) -> None:
    """The connection is closed at the first request that is not part of a login."""
    _send_all(stage, "before login", _frames(long_lists()), lambda: Sender(stage.login_port), is_answered=False)


def long_lists_without_rights(stage: Stage) -> None:
    """Each list of a user to whom no ACL allows anything."""
    _send_all(stage, USER, _frames(long_lists()), lambda: Sender(stage.login_port, USER))


def long_lists_of_a_super_user(stage: Stage) -> None:
    """Each list of a user to whom everything is allowed, once there are coordinators."""
    for key_type in (0, 1):
        request = FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)
        stage.eventually("there is a coordinator", partial(_is_found, stage, request))
    _send_all(stage, SUPER_USER, _frames(long_lists()), lambda: Sender(stage.login_port, SUPER_USER))


def long_lists_at_a_controller(stage: Stage) -> None:
    """Each list of a node, and each list that a broker forwards for a client with or without rights."""
    _send_all(stage, "a node", _frames(controller_lists()), lambda: Sender(stage.controller_port))
    for user in (USER, SUPER_USER):
        client = ForwardedClient(Principal("User", user), "127.0.0.1", "limits")
        _send_all(stage, f"for {user}", _envelopes(client), lambda: Sender(stage.controller_port))


def _is_found(stage: Stage, request: FindCoordinatorRequest) -> bool:
    return stage.client.ask(request, FindCoordinatorResponse, 4).coordinators[0].error_code == ErrorCode.NONE


def _frames(lists: Iterable[LongList]) -> Iterator[tuple[str, bytes]]:
    for each in lists:
        yield each.name, request_frame(long_request(each), each.version)


def _envelopes(client: ForwardedClient) -> Iterator[tuple[str, bytes]]:
    for each in enveloped_lists():
        yield each.name, request_frame(enveloped_request(long_request(each), each.version, client), 0)


def _send_all(
    stage: Stage,
    sender_name: str,
    frames: Iterable[tuple[str, bytes]],
    connect: Callable[[], Sender],
    *,
    is_answered: bool = True,
) -> None:
    """Beside all lists the honest produces have the p99 of the bar, and none waits long; the broker is not fenced."""
    time.sleep(BASELINE_S)
    begun = stage.honest_count
    bar_ms = HONEST_P99_MS_MAX + stage.honest_p99_ms(max(0, begun - BASELINE_COUNT))
    held_up = []
    for name, frame in frames:
        sender = connect()
        first = stage.honest_count
        began = time.monotonic()
        reply = sender.exchange(frame)
        took_s = time.monotonic() - began
        sender.close()
        stage.await_honest(first + 3)
        slowest_ms = stage.honest_slowest_ms(first)
        print(f"  {sender_name}: {name:54} {took_s:6.2f} s, honest {slowest_ms:5.1f} ms", flush=True)
        stage.check(is_answered or reply is None, f"{name} is answered before login")
        stage.check(stage.metric("kafka_controller_kafkacontroller_fencedbrokercount") == 0, f"fenced by {name}")
        if slowest_ms > HONEST_SLOWEST_MS_MAX:
            held_up.append(f"{name} {slowest_ms:.0f} ms")
    stage.check(not held_up, f"an honest produce waited beside {', '.join(held_up)}")
    p99_ms = stage.honest_p99_ms(begun)
    print(f"  {sender_name}: p99 of the honest produces {p99_ms:.1f} ms, bar {bar_ms:.1f}", flush=True)
    stage.check(p99_ms <= bar_ms, f"the p99 of the honest produces is {p99_ms:.0f} ms")
