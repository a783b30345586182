"""The sources of schemas: a schema registry over HTTP, or a directory.

| in a directory | holds                                                                            |
|----------------|----------------------------------------------------------------------------------|
| `7.avsc`       | the Avro schema with the id 7                                                    |
| `7.desc`       | a FileDescriptorSet, as `protoc --descriptor_set_out --include_imports` writes it |
| `7.json`       | a JSON schema                                                                    |

A schema that values name by its GUID has the GUID in place of the id in the name of its file, in lower case. A
directory cannot know which id a GUID belongs to.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener
from uuid import UUID

from moldau.security.bounded_answers import AnswerLimits, limit_answer
from moldau.tables.refusals import Refused

SchemaId: TypeAlias = int | UUID
"""The id of a schema in its registry, or its GUID, which it has in every registry."""
TIMEOUT_S: Final = 30
REFERENCES_MAX: Final = 100
ANSWER_SIZE_MAX: Final = 16 << 20
"""The most bytes of one response of a registry."""
PAUSES_S: Final = (0.1, 0.4)
"""The pauses (seconds) before a request is repeated."""
RETRIED_HTTP_STATUSES: Final = (429, 500, 502, 503, 504)
"""The HTTP statuses after which a request is repeated."""
ACCEPT_HEADER: Final = "application/vnd.schemaregistry.v1+json, application/json"
TRUST: Final = "the file that SSL_CERT_FILE names has the authorities that are trusted"
_NO_URL: Final = re.compile(r"[\x00-\x20\x7f]")


class Reference(NamedTuple):
    """A schema to which another schema refers."""

    name: str
    """The name by which the other schema refers to this one. For Protobuf it is the name of an imported file."""
    text: bytes


class Schema(NamedTuple):
    """A schema, together with the schemas to which it refers."""

    kind: str
    """The type of the schema: AVRO, PROTOBUF or JSON."""
    text: bytes
    """The schema as JSON; for Protobuf a serialized FileDescriptorProto, or a FileDescriptorSet if `is_set`."""
    references: tuple[Reference, ...] = ()
    is_set: bool = False


class SchemaSource(NamedTuple):
    """A source of schemas: the URL of a registry, or a directory. It is pickled into the tasks."""

    place: str
    timeout_s: float = TIMEOUT_S
    """The time (seconds) within which a registry has to return a schema with all schemas to which it refers."""

    def check(self) -> None:
        """Raise `Refused` if the place is neither an HTTP URL nor a directory."""
        if self._is_url():
            RegistryAddress.of(self.place)
        elif not self._directory().is_dir():
            raise Refused(f"{self._directory()} is neither the URL of a schema registry (http://…) nor a directory")

    def schema(self, schema_id: SchemaId) -> Schema:
        """Return the schema with an id or a GUID. Raises `ValueNotDecoded` if it does not exist, `RegistryNotReached`,
        and `Refused` for an invalid URL.
        """
        if self._is_url():
            address = RegistryAddress.of(self.place)
            return _Registry(address, time.monotonic() + self.timeout_s, schema_id).schema()
        return self._read(schema_id)

    def _is_url(self) -> bool:
        return self.place.lower().startswith(("http:", "https:"))

    def _directory(self) -> Path:
        return Path(self.place.removeprefix("file://"))

    def _read(self, schema_id: SchemaId) -> Schema:
        directory = self._directory()
        for suffix, kind in ((".avsc", "AVRO"), (".desc", "PROTOBUF"), (".json", "JSON")):
            try:
                text = (directory / f"{schema_id}{suffix}").read_bytes()
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise RegistryNotReached(f"schema {schema_id}: {problem.strerror or problem}") from None
            return Schema(kind, text, is_set=kind == "PROTOBUF")
        if not directory.is_dir():
            raise RegistryNotReached(f"schema {schema_id}: {directory} is not a directory")
        hint = f", which has no schema by its GUID without {schema_id}.avsc, .desc or .json"
        raise ValueNotDecoded(f"schema {schema_id} is not in {directory}{hint if isinstance(schema_id, UUID) else ''}")


class RegistryAddress(NamedTuple):
    """The address of a schema registry, and the login for it."""

    base: str
    """The URL without the login, and without a slash at its end."""
    host: str
    """Host and port, as messages name the registry."""
    login: str | None
    """The value of the header Authorization; None if the URL has no login."""

    @classmethod
    def of(cls, place: str) -> RegistryAddress:
        """Parse the URL of a registry. User and password are percent-encoded in it. Raises `Refused`, with a message
        without the password.
        """
        try:
            parts = urlsplit(place)
            parts.hostname and parts.hostname.encode("idna")
            is_whole = bool(parts.hostname) and parts.port != 0 and not _NO_URL.search(place)
        except ValueError:  # a port that is not a number, brackets that are not closed, a host of more than 63 letters
            is_whole = False
        if not is_whole:
            shown = re.sub("//.*@", "//…@", place)
            raise Refused(f"{shown} is not the URL of a registry, like https://user:password@host:8081")
        if parts.query or parts.fragment:
            raise Refused(f"the URL of the registry {parts.hostname} has a part after ? or #, which a registry has not")
        user, _, host = parts.netloc.rpartition("@")
        login = None
        if user:
            name, _, word = user.partition(":")
            login = "Basic " + base64.b64encode(f"{unquote(name)}:{unquote(word)}".encode()).decode()
        return cls(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), host, login)


class _Registry:
    """The requests to a registry for one schema, which share one deadline."""

    def __init__(self, address: RegistryAddress, ends_s: float, schema_id: SchemaId) -> None:
        self._address = address
        self._limits = AnswerLimits(ANSWER_SIZE_MAX, ends_s, time.monotonic)
        self._schema_id = schema_id
        self._told = f"schema {schema_id}: {address.host}"

    def schema(self) -> Schema:
        path = f"/schemas/{'guids' if isinstance(self._schema_id, UUID) else 'ids'}/{self._schema_id}"
        answer = self._get(path)
        kind = str(answer.get("schemaType") or "AVRO")
        if kind == "PROTOBUF":  # as text it would need a compiler
            answer = self._get(f"{path}?format=serialized")
        return Schema(kind, self._text(answer, kind), tuple(self._referred(answer, kind)))

    def _text(self, answer: Mapping[str, object], kind: str) -> bytes:
        text = str(answer["schema"])
        if kind != "PROTOBUF":
            return text.encode()
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise ValueNotDecoded(
                f"{self._told} gives Protobuf as text only (it does not know format=serialized): name a directory with "
                f"{self._schema_id}.desc"
            ) from None

    def _referred(self, answer: Mapping[str, object], kind: str) -> list[Reference]:
        """Fetch all schemas to which a schema refers, also through others. Each comes after those to which it refers
        itself. Raises `ValueNotDecoded` if there are more than `REFERENCES_MAX`."""
        found: dict[tuple[str, str], bytes] = {}
        met: set[tuple[str, str]] = set()

        def follow(answer: Mapping[str, object]) -> None:
            for name, path in self._references(answer):
                if (name, path) in met:
                    continue
                if len(met) >= REFERENCES_MAX:
                    raise ValueNotDecoded(f"schema {self._schema_id} refers to more than {REFERENCES_MAX} others")
                met.add((name, path))
                referred = self._get(path + ("&format=serialized" if kind == "PROTOBUF" else ""))
                follow(referred)
                found[name, path] = self._text(referred, kind)

        follow(answer)
        return [Reference(name, text) for (name, _), text in found.items()]

    def _references(self, answer: Mapping[str, object]) -> list[tuple[str, str]]:
        """Return the name and the request path of each reference in a response. The paths also find versions that were
        deleted."""
        given = answer.get("references") or []
        try:
            assert isinstance(given, list)
            return [
                (
                    str(each["name"]),
                    f"/subjects/{quote(str(each['subject']), safe='')}/versions/{int(each['version'])}?deleted=true",
                )
                for each in given
            ]
        except (AssertionError, LookupError, TypeError, ValueError):
            raise ValueNotDecoded(f"{self._told} gives references that are none") from None

    def _get(self, path: str) -> dict[str, object]:
        """Request a path, and repeat the request if the registry may answer soon. Raises `ValueNotDecoded` and
        `RegistryNotReached`."""
        for pause_s in PAUSES_S:
            try:
                return self._answer(path)
            except _AskAgain:
                if time.monotonic() + pause_s >= self._limits.ends_s:
                    break
                time.sleep(pause_s)
        try:
            return self._answer(path)
        except _AskAgain as problem:
            raise RegistryNotReached(str(problem)) from None

    def _answer(self, path: str) -> dict[str, object]:
        request = Request(self._address.base + path, headers={"Accept": ACCEPT_HEADER})
        if self._address.login is not None:
            request.add_unredirected_header("Authorization", self._address.login)
        left_s = self._limits.ends_s - time.monotonic()
        if left_s <= 0:
            raise RegistryNotReached(f"{self._told} did not answer in time")
        opener = build_opener(_NoRedirection, _LimitedHttp(self._limits), _LimitedHttps(self._limits))
        try:
            with opener.open(request, timeout=left_s) as reply:
                answer = json.load(reply)
        except HTTPError as problem:
            raise self._refusal(problem, path) from None
        except (HTTPException, OSError) as problem:
            reason = getattr(problem, "reason", problem)
            if isinstance(reason, SSLCertVerificationError):
                raise RegistryNotReached(f"{self._told}: {reason.verify_message}; {TRUST}") from None
            if isinstance(reason, ConnectionError | RemoteDisconnected):
                raise _AskAgain(f"{self._told}: {problem}") from None
            raise RegistryNotReached(f"{self._told}: {problem}") from None
        except (ValueError, RecursionError) as problem:
            raise RegistryNotReached(f"{self._told}: {problem}") from None
        if not isinstance(answer, dict) or "schema" not in answer:
            raise ValueNotDecoded(f"{self._told} gives no schema for {path}")
        return answer

    def _refusal(self, answer: HTTPError, path: str) -> Exception:
        told = f"{self._told} answers {answer.code} to {path}"
        if answer.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            given = "does not let this login in" if self._address.login else "asks for a login"
            return RegistryNotReached(f"{told}: it {given} (https://user:password@{self._address.host})")
        if answer.code in RETRIED_HTTP_STATUSES:
            return _AskAgain(told)
        code = error_code(answer)
        if code == HTTPStatus.NOT_FOUND and isinstance(self._schema_id, UUID):  # There is no such path.
            return RegistryNotReached(f"{told}: it does not know schemas by their GUID")
        return (RegistryNotReached if code is None else ValueNotDecoded)(told)


class _AskAgain(Exception):
    """The registry did not answer the request, but may answer a repeated one."""


class _NoRedirection(HTTPRedirectHandler):
    """Raises ValueError for a redirection. Otherwise the host that answers could choose another host, which would get
    the request."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> NoReturn:
        place = urlsplit(newurl)
        told = f"{place.scheme}://{place.hostname}"
        raise ValueError(f"it redirects to {told}, which is not followed: name that address if it is the registry")


class _LimitedHttp(HTTPHandler):
    """Opens HTTP connections that limit the size and the time of responses."""

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
    """Opens TLS connections that limit the size and the time of responses."""

    def __init__(self, limits: AnswerLimits) -> None:
        super().__init__()
        self._limits = limits

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req)  # type: ignore[arg-type, return-value, unused-ignore]

    def _connection(self, host: str, **options: Any) -> HTTPSConnection:
        connection = HTTPSConnection(host, **options)
        limit_answer(connection, self._limits)
        return connection


def error_code(answer: HTTPError) -> object:
    """Return the `error_code` in a response 404 of a registry, which then does not have the schema. Returns None for
    any other response. A 404 without an `error_code` comes from another kind of server, or means that the path is
    wrong."""
    if answer.code != HTTPStatus.NOT_FOUND:
        return None
    try:
        told = json.load(answer)
    except (HTTPException, OSError, ValueError, RecursionError):
        return None
    return told.get("error_code") if isinstance(told, dict) else None


class ValueNotDecoded(Refused):
    """A value cannot be decoded: it is not framed, its schema does not exist, or it does not fit its schema or the
    columns."""


class RegistryNotReached(Refused):
    """The registry does not answer, its answer is not that of a registry, or the directory cannot be read. So it is not
    known whether the value has a schema."""
