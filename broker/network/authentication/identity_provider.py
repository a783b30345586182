"""The OAuth identity provider of OAUTHBEARER: requests to it, its keys, and the token with which this node logs in to
other nodes.

A request has one short answer, bounded in size and in time. It blocks, so it runs in an executor thread. The address of
a request has been checked against the list of allowed addresses. A redirection could leave that list, so it is an
error. The keys are fetched at the start, at intervals, and when a token names an unknown key:

    every refresh interval          the keys are fetched again; after each failure the backoff doubles, up to its limit
    a token names an unknown key    one fetch for all waiting clients, at most one in `LOOKUP_MS_MIN`

After a failed fetch the known keys stay in use. The token is replaced before it expires.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from moldau.broker.config.oauthbearer import OauthLoginSettings, ProviderEndpoint
from moldau.broker.runtime.environment import Environment
from moldau.security.bounded_answers import AnswerLimits, limit_answer
from moldau.security.sasl.mechanism import LoginFailed
from moldau.security.sasl.oauthbearer.keys import InvalidKeys, KeySet, parse_key_set
from moldau.security.sasl.oauthbearer.token import InvalidToken, expiry_ms
from moldau.storage.files.port import FileSystem

log = logging.getLogger("moldau.listener")

SIZE_MAX: Final = 1 << 20
"""The maximum size (bytes) of an answer."""
TIME_S_MAX: Final = 30.0
"""The maximum time (seconds) for receiving an answer, even if the provider keeps sending bytes of it."""
LOOKUP_MS_MIN: Final = 1_000
"""The minimum time (ms) after a fetch before an unknown key may cause the next one. Clients choose the key ids in their
tokens, and must not be able to make this node send requests to the provider all the time.
"""
ProviderRequest = Callable[[ProviderEndpoint], bytes]
UNKNOWN_LIFE_MS: Final = 300_000
"""The lifetime (ms) that is assumed for a token if this node cannot read its expiry."""


class ProviderFailure(Exception):
    """Raised if the provider did not answer, or if it answered with an error or an unusable response. The text holds no
    secret.
    """


@dataclass(frozen=True, slots=True)
class PostRequest:
    """The headers and body of a POST request. Its `repr` shows neither, because they hold secrets."""

    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return "Post"


class ProviderHost(Protocol):
    """The part of the environment that a request to an identity provider uses: the file system for file: URLs, and a
    precise clock.
    """

    @property
    def fs(self) -> FileSystem: ...

    def precise_ns(self) -> int: ...


def ask_provider(
    endpoint: ProviderEndpoint, host: ProviderHost, post: PostRequest | None = None, authorities: str | None = None
) -> bytes:
    """Fetch the document behind a provider's URL. Raises `ProviderFailure`.

    `authorities` is a file of trusted certificates in PEM; None to trust the system's certificates.
    """
    parts = urlsplit(endpoint.url)
    try:
        if parts.scheme == "file":
            with closing(host.fs.open(unquote(parts.path), read_only=True)) as file:
                return _bounded(file.pread(SIZE_MAX + 1, 0))
        return _over_http(endpoint, host.precise_ns, post, authorities)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderFailure(f"{endpoint.url} cannot be read: {error or type(error).__name__}") from None


def _over_http(
    endpoint: ProviderEndpoint, precise_ns: Callable[[], int], post: PostRequest | None, authorities: str | None
) -> bytes:
    parts = urlsplit(endpoint.url)
    host, path = parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: http.client.HTTPConnection
    timeout_s = endpoint.connect_ms / 1000
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=authorities)
        port = parts.port or http.client.HTTPS_PORT  # None would be looked for in the host, behind its last colon.
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port or http.client.HTTP_PORT, timeout=timeout_s)
    try:
        now_s = partial(_seconds, precise_ns)
        limit_answer(connection, AnswerLimits(SIZE_MAX, now_s() + TIME_S_MAX, now_s))
        connection.connect()
        connection.sock.settimeout(endpoint.read_ms / 1000)
        if post is None:
            connection.request("GET", path, headers={"Accept": "application/json"})
        else:
            connection.request("POST", path, post.body, dict(post.headers))
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ProviderFailure(f"{endpoint.url} answered with status {response.status}")
        return response.read()
    finally:
        connection.close()


def _seconds(precise_ns: Callable[[], int]) -> float:
    return precise_ns() / 1e9


def _bounded(data: bytes) -> bytes:
    if len(data) > SIZE_MAX:
        raise ValueError(f"the answer has more than {SIZE_MAX} bytes")
    return data


class ProviderKeys:
    """The keys of one identity provider. `follow` fetches them as long as the node runs; `keys` is the current set,
    empty before the first fetch.
    """

    def __init__(
        self, endpoint: ProviderEndpoint, refresh_ms: int, environment: Environment, ask: ProviderRequest | None = None
    ) -> None:
        """`ask` fetches the provider's key set as text; it blocks, so it is called on an executor thread."""
        self.keys = KeySet()
        self._endpoint = endpoint
        self._refresh_ms = refresh_ms
        self._environment = environment
        self._ask = (lambda each: ask_provider(each, environment)) if ask is None else ask
        self._fetched_ms: int | None = None
        self._problem: str | None = None
        self._running: asyncio.Future[None] | None = None

    async def follow(self) -> None:
        """Fetch the keys now and at every refresh interval, until the task is cancelled."""
        endpoint = self._endpoint
        pause_ms = endpoint.backoff_ms
        while True:
            await self._fetch()
            if self._problem is None:
                pause_ms = endpoint.backoff_ms
                await asyncio.sleep(self._refresh_ms / 1000)
            else:
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, endpoint.backoff_ms_max)

    async def look_up(self, what: object) -> KeySet:
        """Fetch the keys and return them. If the last fetch ended less than `LOOKUP_MS_MIN` ago, return the known keys
        without a fetch.
        """
        now_ms = self._environment.monotonic_ms()
        if self._running is not None or self._fetched_ms is None or now_ms - self._fetched_ms >= LOOKUP_MS_MIN:
            await self._fetch()
        return self.keys

    async def _fetch(self) -> None:
        """Fetch the keys. Callers that arrive during a fetch wait for its end instead of beginning another one."""
        if self._running is not None:
            await asyncio.shield(self._running)
            return
        self._running = asyncio.get_running_loop().create_future()
        try:
            await self._fetch_once()
        finally:
            running, self._running = self._running, None
            running.set_result(None)

    async def _fetch_once(self) -> None:
        try:
            self.keys = await self._environment.offload(lambda: parse_key_set(self._ask(self._endpoint)))
            problem = None
        except (ProviderFailure, InvalidKeys) as failure:
            problem = f"the keys of the identity provider stay as they are: {failure}"
        if problem is not None and problem != self._problem:
            log.warning("%s", problem)
        elif problem is None and (self._problem is not None or self._fetched_ms is None):
            log.info("%d keys of the identity provider were read from %s", len(self.keys.keys), self._endpoint.url)
        self._problem = problem
        self._fetched_ms = self._environment.monotonic_ms()


class ProviderTokens:
    """Keeps a valid token with which this node logs in to other nodes. `follow` fetches tokens as long as the node
    runs; `token` raises `LoginFailed` before the first token has arrived.
    """

    def __init__(self, settings: OauthLoginSettings, environment: Environment, fetch: Callable[[], str]) -> None:
        """`fetch` asks the provider for a token. It blocks, and raises `ProviderFailure` or `LoginFailed`."""
        self._settings = settings
        self._environment = environment
        self._fetch = fetch
        self._token: str | None = None
        self._problem = "the identity provider has not answered yet"

    def token(self) -> str:
        if self._token is None:
            raise LoginFailed(self._problem)
        return self._token

    async def follow(self) -> None:
        """Fetch a token, and then a new one each time before the current one expires, until the task is cancelled."""
        endpoint = self._settings.tokens
        assert endpoint is not None, "without an endpoint there is nothing to follow"
        pause_ms = endpoint.backoff_ms
        while True:
            try:
                self._token = await self._environment.offload(self._fetch)
            except (ProviderFailure, LoginFailed) as failure:
                if str(failure) != self._problem:
                    log.warning("this node has no new token to log in with: %s", failure)
                self._problem = str(failure)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, endpoint.backoff_ms_max)
                continue
            self._problem, pause_ms = "", endpoint.backoff_ms
            await asyncio.sleep(self._next_ms(self._token) / 1000)

    def _next_ms(self, token: str) -> int:
        """The time (ms) from now to the next fetch of a token: a fraction of the token's lifetime. If the lifetime is
        long enough, the fetch comes at least `refresh_buffer_ms` before the token expires. There is always a minimum
        pause between two fetches.
        """
        settings, now_ms = self._settings, self._environment.wall_ms()
        try:
            life_ms = expiry_ms(token) - now_ms
        except InvalidToken:
            life_ms = UNKNOWN_LIFE_MS
        part = settings.refresh_factor + settings.refresh_jitter * self._environment.random.random()
        wanted_ms = int(life_ms * part)
        if life_ms > settings.refresh_ms_min + settings.refresh_buffer_ms:
            wanted_ms = max(settings.refresh_ms_min, min(wanted_ms, life_ms - settings.refresh_buffer_ms))
        return max(wanted_ms, settings.tokens.backoff_ms if settings.tokens is not None else 0, 1_000)
