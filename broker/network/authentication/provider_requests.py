"""Requests to an identity provider: one short answer, bounded in size and in time, without redirections.

They block: they run in an executor thread. Addresses are checked against the list of allowed ones before they come
here, and a redirection could leave that list, so it is an error.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from moldau.broker.config.oauthbearer import Fetching
from moldau.storage.files.port import FileSystem

SIZE_MAX: Final = 1 << 20
"""Bytes of an answer."""
TIME_S_MAX: Final = 30.0
"""For the whole answer, however steadily the provider sends it."""
PIECE_SIZE: Final = 16_384

Data = TypeVar("Data", bytes, bytearray)


class ProviderFailure(Exception):
    """The provider did not answer, or with an error or an unusable response. The text holds no secret."""


@dataclass(frozen=True, slots=True)
class Post:
    """The headers and body of a POST request. Its `repr` shows neither, because they hold secrets."""

    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return "Post"


class ProviderHost(Protocol):
    """The network access of this machine, by which providers are asked."""

    @property
    def fs(self) -> FileSystem: ...

    def precise_ns(self) -> int: ...


def ask_provider(
    fetching: Fetching, host: ProviderHost, post: Post | None = None, authorities: str | None = None
) -> bytes:
    """The document behind a URL. `authorities`: a file of trusted certificates in PEM in place of the system's.

    Raises `ProviderFailure`.
    """
    parts = urlsplit(fetching.url)
    try:
        if parts.scheme == "file":
            with closing(host.fs.open(unquote(parts.path), read_only=True)) as file:
                return _bounded(file.pread(SIZE_MAX + 1, 0))
        return _over_http(fetching, host.precise_ns, post, authorities)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderFailure(f"{fetching.url} cannot be read: {error or type(error).__name__}") from None


def _over_http(fetching: Fetching, precise_ns: Callable[[], int], post: Post | None, authorities: str | None) -> bytes:
    parts = urlsplit(fetching.url)
    host, path = parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: http.client.HTTPConnection
    timeout_s = fetching.connect_ms / 1000
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=authorities)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    try:
        connection.connect()
        connection.sock.settimeout(fetching.read_ms / 1000)
        if post is None:
            connection.request("GET", path, headers={"Accept": "application/json"})
        else:
            connection.request("POST", path, post.body, dict(post.headers))
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ProviderFailure(f"{fetching.url} answered with status {response.status}")
        return _read(fetching, precise_ns, response)
    finally:
        connection.close()


def _read(fetching: Fetching, precise_ns: Callable[[], int], response: http.client.HTTPResponse) -> bytes:
    ends_ns, data = precise_ns() + int(TIME_S_MAX * 1e9), bytearray()
    while piece := response.read1(PIECE_SIZE):
        data += piece
        _bounded(data)
        if precise_ns() > ends_ns:
            raise ProviderFailure(f"{fetching.url} did not answer within {TIME_S_MAX:g} s")
    return bytes(data)


def _bounded(data: Data) -> Data:
    if len(data) > SIZE_MAX:
        raise ValueError(f"the answer has more than {SIZE_MAX} bytes")
    return data
