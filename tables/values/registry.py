"""The sources of schemas: a schema registry over HTTP, or a directory.

| in a directory | holds                                                                            |
|----------------|----------------------------------------------------------------------------------|
| `7.avsc`       | the Avro schema with the id 7                                                    |
| `7.desc`       | a FileDescriptorSet, as `protoc --descriptor_set_out --include_imports` writes it |
| `7.json`       | a JSON schema                                                                    |

The frame around a value whose schema is in a registry: a zero byte, the schema's id in four bytes, the payload.

A Protobuf payload begins with the path to its message type: a count, then that many indexes, all zigzag varints. A
single zero byte stands for the first type of the file.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from moldau.security.bounded_answers import AnswerLimits, limit_answer
from moldau.tables.refusals import Refused

TIMEOUT_S: Final = 30
REFERENCES_MAX: Final = 100
ANSWER_SIZE_MAX: Final = 16 << 20
"""Bytes of one answer of a registry."""


class Schema(NamedTuple):
    """A schema, preceded by the schemas that it refers to."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: bytes
    """JSON; for Protobuf a serialized FileDescriptorProto, or a FileDescriptorSet where `is_set`."""
    references: tuple[bytes, ...] = ()
    is_set: bool = False


class SchemaSource(NamedTuple):
    """The place of schemas: the URL of a registry, or a directory. The value is pickled into the tasks."""

    place: str
    timeout_s: float = TIMEOUT_S
    """How long a registry is waited for, for a schema with all schemas that it refers to."""

    def schema(self, schema_id: int) -> Schema:
        """The schema with an id. Raises `ValueNotDecoded` where it does not exist, and `RegistryNotReached`."""
        if self.place.startswith(("http://", "https://")):
            return _Registry(self.place, time.monotonic() + self.timeout_s, schema_id).schema()
        return self._read(schema_id)

    def _read(self, schema_id: int) -> Schema:
        directory = Path(self.place.removeprefix("file://"))
        for suffix, kind in ((".avsc", "AVRO"), (".desc", "PROTOBUF"), (".json", "JSON")):
            try:
                text = (directory / f"{schema_id}{suffix}").read_bytes()
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise RegistryNotReached(f"schema {schema_id}: {problem}") from None
            return Schema(kind, text, is_set=kind == "PROTOBUF")
        if not directory.is_dir():
            raise RegistryNotReached(f"schema {schema_id}: {directory} is not a directory")
        raise ValueNotDecoded(f"schema {schema_id} is not in {directory}")


class _Registry:
    """The requests to a registry for one schema, with one deadline."""

    def __init__(self, place: str, ends_s: float, schema_id: int) -> None:
        self._base = urlsplit(place)
        self._user, _, self._host = self._base.netloc.rpartition("@")
        self._limits = AnswerLimits(ANSWER_SIZE_MAX, ends_s, time.monotonic)
        self._schema_id = schema_id

    def schema(self) -> Schema:
        path = f"/schemas/ids/{self._schema_id}"
        answer = self._get(path)
        kind = str(answer.get("schemaType", "AVRO"))
        if kind == "PROTOBUF":  # as text it would need a compiler
            answer = self._get(f"{path}?format=serialized")
            return Schema(kind, base64.b64decode(str(answer["schema"])), tuple(self._referred(answer, kind)))
        return Schema(kind, str(answer["schema"]).encode(), tuple(self._referred(answer, kind)))

    def _referred(self, answer: dict[str, object], kind: str) -> list[bytes]:
        """The schemas that a schema refers to; each one comes after its own references."""
        found: dict[str, bytes] = {}

        def follow(references: Sequence[dict[str, object]]) -> None:
            for each in references:
                path = f"/subjects/{quote(str(each['subject']), safe='')}/versions/{each['version']}"
                if path in found:
                    continue
                if len(found) >= REFERENCES_MAX:
                    raise ValueNotDecoded(f"schema {self._schema_id} refers to more than {REFERENCES_MAX} others")
                found[path] = b""
                referred = self._get(path + ("?format=serialized" if kind == "PROTOBUF" else ""))
                follow(_references(referred))
                text = str(referred["schema"])
                del found[path]
                found[path] = base64.b64decode(text) if kind == "PROTOBUF" else text.encode()

        follow(_references(answer))
        return list(found.values())

    def _get(self, path: str) -> dict[str, object]:
        host, base = self._host, self._base
        told = f"schema {self._schema_id}: {host}"
        request = Request(urlunsplit((base.scheme, host, base.path.rstrip("/"), "", "")) + path)
        if self._user:
            request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(self._user.encode()).decode())
        left_s = self._limits.ends_s - time.monotonic()
        if left_s <= 0:
            raise RegistryNotReached(f"{told} did not answer in time")
        opener = build_opener(_NoRedirection, _LimitedHttp(self._limits), _LimitedHttps(self._limits))
        try:
            with opener.open(request, timeout=left_s) as reply:
                answer = json.load(reply)
        except HTTPError as problem:
            kind = ValueNotDecoded if says_unknown(problem) else RegistryNotReached
            raise kind(f"{told} answers {problem.code} to {path}") from None
        except (URLError, HTTPException, OSError, ValueError) as problem:
            raise RegistryNotReached(f"{told}: {problem}") from None
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueNotDecoded(f"{told} gives no schema for {path}")
        return answer


class _NoRedirection(HTTPRedirectHandler):
    """Refuses a redirection: another host would be given the password, or chosen by the one that answers."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> NoReturn:
        place = urlsplit(newurl)
        told = f"{place.scheme}://{place.hostname}"
        raise ValueError(f"it redirects to {told}, which is not followed: name that address if it is the registry")


class _LimitedHttp(HTTPHandler):
    """Opens connections whose answers are under limits."""

    def __init__(self, limits: AnswerLimits) -> None:
        super().__init__()
        self._limits = limits

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req)  # type: ignore[arg-type, return-value, unused-ignore]

    def _connection(self, host: str, **options: Any) -> HTTPConnection:
        connection = HTTPConnection(host, **options)
        limit_answer(connection, self._limits)
        return connection


class _LimitedHttps(HTTPSHandler):
    """The same under TLS."""

    def __init__(self, limits: AnswerLimits) -> None:
        super().__init__()
        self._limits = limits

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req)  # type: ignore[arg-type, return-value, unused-ignore]

    def _connection(self, host: str, **options: Any) -> HTTPSConnection:
        connection = HTTPSConnection(host, **options)
        limit_answer(connection, self._limits)
        return connection


def says_unknown(answer: HTTPError) -> bool:
    """Whether a registry answers that it has no such schema. Its answer has a code of its own; a 404 without one is
    that of another server, or of a wrong path.
    """
    if answer.code != HTTPStatus.NOT_FOUND:
        return False
    try:
        told = json.load(answer)
    except (HTTPException, OSError, ValueError):
        return False
    return isinstance(told, dict) and "error_code" in told


def _references(answer: dict[str, object]) -> list[dict[str, object]]:
    given = answer.get("references")
    return given if isinstance(given, list) else []


MAGIC: Final = 0
HEAD: Final = Struct(">bi")
INDEXES_MAX: Final = 64
"""How deeply message types may be nested."""
VARINT_SIZE_MAX: Final = 5


class ValueNotDecoded(Refused):
    """A value is not framed, its schema does not exist, or it does not fit its schema or the columns."""


class RegistryNotReached(Refused):
    """The registry does not answer, or not as one, or the directory cannot be read: whether the value has a schema is
    not known.
    """


def unframed(value: bytes) -> tuple[int, memoryview]:
    """Split a framed value into (schema id, payload). Raises `ValueNotDecoded`."""
    if len(value) < HEAD.size or value[0] != MAGIC:
        raise ValueNotDecoded("the value is not framed: it begins with neither a zero byte nor the id of a schema")
    return HEAD.unpack_from(value)[1], memoryview(value)[HEAD.size :]


def message_path(payload: memoryview) -> tuple[list[int], memoryview]:
    """Split a Protobuf payload into (indexes of the message type, message). Raises `ValueNotDecoded`."""
    count, position = _varint(payload, 0)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueNotDecoded(f"the value has {count} indexes of message types")
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        if index < 0:
            raise ValueNotDecoded(f"the value has the index {index} of a message type")
        indexes.append(index)
    return indexes or [0], payload[position:]


def _varint(payload: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    value = 0
    for count, byte in enumerate(payload[position : position + VARINT_SIZE_MAX]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + count + 1
    raise ValueNotDecoded("the value ends inside the indexes of its message type")
