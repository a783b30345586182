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
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from moldau.tables.refusals import Refused

TIMEOUT_S: Final = 30
REFERENCES_MAX: Final = 100


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
    """How long a registry is waited for."""

    def schema(self, schema_id: int) -> Schema:
        """The schema with an id. Raises `ValueNotDecoded` where it does not exist, and `RegistryNotReached`."""
        if self.place.startswith(("http://", "https://")):
            return self._asked(f"/schemas/ids/{schema_id}", schema_id)
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

    def _asked(self, path: str, schema_id: int) -> Schema:
        answer = self._get(path, schema_id)
        kind = str(answer.get("schemaType", "AVRO"))
        if kind == "PROTOBUF":  # as text it would need a compiler
            answer = self._get(f"{path}?format=serialized", schema_id)
            return Schema(kind, base64.b64decode(str(answer["schema"])), tuple(self._referred(answer, schema_id, kind)))
        return Schema(kind, str(answer["schema"]).encode(), tuple(self._referred(answer, schema_id, kind)))

    def _referred(self, answer: dict[str, object], schema_id: int, kind: str) -> list[bytes]:
        """The schemas that a schema refers to; each one comes after its own references."""
        found: dict[str, bytes] = {}

        def follow(references: Sequence[dict[str, object]]) -> None:
            for each in references:
                path = f"/subjects/{quote(str(each['subject']), safe='')}/versions/{each['version']}"
                if path in found:
                    continue
                if len(found) >= REFERENCES_MAX:
                    raise ValueNotDecoded(f"schema {schema_id} refers to more than {REFERENCES_MAX} others")
                found[path] = b""
                referred = self._get(path + ("?format=serialized" if kind == "PROTOBUF" else ""), schema_id)
                follow(_references(referred))
                text = str(referred["schema"])
                del found[path]
                found[path] = base64.b64decode(text) if kind == "PROTOBUF" else text.encode()

        follow(_references(answer))
        return list(found.values())

    def _get(self, path: str, schema_id: int) -> dict[str, object]:
        parts = urlsplit(self.place)
        user, _, host = parts.netloc.rpartition("@")
        request = Request(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")) + path)
        if user:
            request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
        try:
            with urlopen(request, timeout=self.timeout_s) as reply:
                answer = json.load(reply)
        except HTTPError as problem:
            kind = ValueNotDecoded if says_unknown(problem) else RegistryNotReached
            raise kind(f"schema {schema_id}: {host} answers {problem.code} to {path}") from None
        except (URLError, OSError, ValueError) as problem:
            raise RegistryNotReached(f"schema {schema_id}: {host}: {problem}") from None
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueNotDecoded(f"schema {schema_id}: {host} gives no schema for {path}")
        return answer


def says_unknown(answer: HTTPError) -> bool:
    """Whether a registry answers that it has no such schema. Its answer has a code of its own; a 404 without one is
    that of another server, or of a wrong path.
    """
    if answer.code != HTTPStatus.NOT_FOUND:
        return False
    try:
        told = json.load(answer)
    except (OSError, ValueError):
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
