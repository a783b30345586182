"""Long lists: each list of each request at 100,000 elements, by a user without rights, by a super user, and before
login.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.frames import request_frame
from broker.requests.table import APIS
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.schema import Field, Wire, fields_in, fields_of

COUNT = 100_000
GIVEN: dict[str, object] = {"max_bytes": 1 << 30, "partition_max_bytes": 1 << 20, "timeout_ms": 30_000, "acks": 1}
"""The values of fields for which 0 would end the work early."""
NUMBERS = {Wire.INT8: 127, Wire.INT16: 32_767, Wire.INT32: 2_000_000, Wire.INT64: 2_000_000}


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
    for row in APIS:
        if row.broker is not None:
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
                None if field.nullable or field.tag is not None else _filled(field.struct, version, (), 0)
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
        case Wire.STRING:
            return f"{field.name[:3]}-{number}"
        case Wire.BYTES:
            return b""
        case Wire.RECORDS:
            return None
        case Wire.UUID:
            return number.to_bytes(16, "big")
        case Wire.BOOL:
            return False
        case Wire.FLOAT64:
            return 1.0
    assert isinstance(field.kind, Wire)
    return number % NUMBERS.get(field.kind, 127)


class Sender:
    """A connection on which one request at a time is sent; a user's, or one before login."""

    def __init__(self, port: int, user: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        if user is not None:
            self.exchange(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
            self.exchange(request_frame(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-secret".encode()), 2))

    def exchange(self, frame: bytes) -> bytes | None:
        """The reply; None where the connection was closed."""
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
