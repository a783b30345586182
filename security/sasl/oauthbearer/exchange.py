"""The OAUTHBEARER exchange (RFC 7628): its messages, the server's side, and the client's side.

    client      n,a=authzid,^Aauth=Bearer token^Akey=value^A^A      ^A is the byte 1
    server      nothing, or {"status":"invalid_token"}; then the client sends ^A, and the exchange has failed

    client's token ──▶ accepted: Authenticated      ──▶ refused: a challenge with the error, then Failed
                   └─▶ its key is not known: NeedsLookup(KeysWanted) ──▶ on_lookup_result(KeySet) ──▶ as above

As a client this node gets a token from the identity provider (client credentials grant), then sends it to the server in
one message. It fetches keys and tokens only from URLs on a list (`AllowedUrls`). That prevents attacks as in
CVE-2025-27817, in which a setting with an arbitrary URL reads files or reaches hosts behind the firewall.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from moldau.security.principal import USER, Principal
from moldau.security.sasl.mechanism import (
    Authenticated,
    Challenge,
    ClientMechanism,
    Failed,
    LoginFailed,
    Mechanism,
    NeedsLookup,
    Step,
)
from moldau.security.sasl.oauthbearer.keys import KeySet
from moldau.security.sasl.oauthbearer.token import SIZE_MAX, InvalidToken, TokenRules, UnknownKey, accept_token

SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(r"[ny],(a=[^,\x00\x01]*)?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01")
_SCHEME: Final = "bearer "
EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class MalformedBearer(ValueError):
    """Raised if a client's message is not a message of OAUTHBEARER."""


class BearerMessage(NamedTuple):
    authorization_id: str
    token: str
    extensions: dict[str, str]


def parse_bearer(message: bytes) -> BearerMessage:
    """Parse the client's first message. Raises `MalformedBearer`."""
    try:
        match = _FIRST.fullmatch(bytes(message).decode("utf-8"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise MalformedBearer("the message has another form")
    pairs = [each.partition("=")[::2] for each in match.group(2).split(SEPARATOR) if each]
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise MalformedBearer("a field is there twice")
    scheme = fields.pop("auth", "")
    if not scheme.lower().startswith(_SCHEME):
        raise MalformedBearer("the message brings no bearer token")
    return BearerMessage((match.group(1) or "a=")[2:], scheme[len(_SCHEME) :].strip(), fields)


def bearer_message(token: str, extensions: dict[str, str]) -> bytes:
    """Build the client's first message. Raises ValueError if an extension cannot be written."""
    for name, value in extensions.items():
        if name == "auth" or not EXTENSION_NAME.fullmatch(name) or not EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"{name} is not the name of an extension, or its value cannot be sent")
    parts = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
    return ("n,,\x01" + SEPARATOR.join(parts) + "\x01\x01").encode()


NAME: Final = "OAUTHBEARER"
REFUSAL: Final = '{"status":"invalid_token"}'
"""The server's answer to a refused token (RFC 7628, section 3.2.2)."""


class KeysWanted(NamedTuple):
    """A request for the provider's key set, as `NeedsLookup.what`. The caller fetches the set again unless it was
    fetched just before: it limits the rate of fetches, because a client chooses the key ids in its tokens."""


class BearerServer(Mechanism):
    """The server's side of one OAUTHBEARER exchange with a client."""

    def __init__(self, rules: TokenRules, keys: KeySet, wall_clock_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._keys = keys
        self._wall_clock_ms = wall_clock_ms
        self._token: str | None = None
        self._authorization_id = ""
        self._reason: str | None = None
        """The reason why the token was refused, for the broker's log; None if it was not refused.

        The challenge tells the client only that the token is invalid. The exchange ends with the client's answer.
        """

    def step(self, message: bytes) -> Step:
        if self._reason is not None:
            return Failed(REFUSAL, self._reason)
        if self._token is not None:
            return Failed("Authentication failed", "the client goes on after the end of the exchange")
        try:
            first = parse_bearer(message)
        except MalformedBearer as error:
            return Failed("Authentication failed: Invalid OAUTHBEARER client first message", str(error))
        self._token, self._authorization_id = first.token, first.authorization_id
        return self._decide(first.token, may_look_up=True)

    def on_lookup_result(self, result: object) -> Step:
        assert isinstance(result, KeySet) and self._token is not None, "the shell gives the keys that were asked for"
        self._keys = result
        return self._decide(self._token, may_look_up=False)

    def _decide(self, token: str, *, may_look_up: bool) -> Step:
        try:
            accepted = accept_token(token, self._rules, self._keys, self._wall_clock_ms())
        except UnknownKey as error:
            return NeedsLookup(KeysWanted()) if may_look_up else self._refuse(str(error))
        except InvalidToken as error:
            return self._refuse(str(error))
        if self._authorization_id not in ("", accepted.subject):
            reason = f"user {accepted.subject!r} asked to act as {self._authorization_id!r}"
            return Failed("Authentication failed: Client requested an authorization id", reason)
        return Authenticated(b"", Principal(USER, accepted.subject), accepted.expires_at_ms)

    def _refuse(self, reason: str) -> Challenge:
        self._reason = reason
        return Challenge(REFUSAL.encode())


RESPONSE_SIZE_MAX: Final = 1 << 20


class TokenRequest(NamedTuple):
    """A request to the provider's token endpoint, which the caller sends by POST. Its `repr` shows no secret."""

    url: str
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"TokenRequest to {self.url}"


def token_request(
    url: str, client_id: str, client_secret: str, scope: str | None, allowed: AllowedUrls
) -> TokenRequest:
    """The token request of a client credentials grant (RFC 6749, section 4.4). Raises `UrlNotAllowed`."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    fields = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    headers = {
        "Accept": "application/json",
        "Authorization": "Basic " + b64encode(pair.encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Cache-Control": "no-cache",
    }
    return TokenRequest(allowed.check(url), headers, urlencode(fields).encode())


def token_of_response(body: bytes) -> str:
    """The access token in the response of a token endpoint. Raises `LoginFailed` if there is none."""
    if len(body) > RESPONSE_SIZE_MAX:
        raise LoginFailed(f"the token endpoint answered with more than {RESPONSE_SIZE_MAX} bytes")
    try:
        token = json.loads(body)["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LoginFailed("the token endpoint did not answer with an access token") from None
    if not isinstance(token, str) or not 0 < len(token) <= SIZE_MAX or not token.isprintable():
        raise LoginFailed("the access token is not a text of a token's size")
    return token


class BearerClient(ClientMechanism):
    """The client's side of one OAUTHBEARER exchange with a server."""

    name = NAME

    def __init__(self, token: str, extensions: dict[str, str] | None = None) -> None:
        """Build the only message of the exchange. Raises ValueError if an extension cannot be sent."""
        self._message = bearer_message(token, extensions or {})

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        raise LoginFailed(f"the server refuses the token: {bytes(challenge[:200])!r}")


SCHEMES: Final = ("https", "http", "file")


class UrlNotAllowed(ValueError):
    """Raised if a URL is not on the list of allowed URLs, or has a scheme that is not allowed."""


class AllowedUrls:
    """The list of URLs from which keys and tokens may be fetched. An empty list allows none."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._urls = frozenset(url.strip() for url in urls if url.strip())

    def check(self, url: str) -> str:
        """Return the URL. Raises `UrlNotAllowed` unless it is on the list and has one of `SCHEMES`."""
        if url not in self._urls:
            raise UrlNotAllowed(f"{url} is not among the allowed URLs of OAUTHBEARER")
        if urlsplit(url).scheme not in SCHEMES:
            raise UrlNotAllowed(f"{url} has none of the schemes {', '.join(SCHEMES)}")
        return url
