"""The client's side of OAUTHBEARER: this node gets a token from the identity provider (client credentials grant), then
sends it to the server in one message.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import quote_plus, urlencode

from moldau.security.sasl.client_mechanism import ClientMechanism, LoginFailed
from moldau.security.sasl.oauthbearer.allowed_urls import AllowedUrls
from moldau.security.sasl.oauthbearer.messages import bearer_message
from moldau.security.sasl.oauthbearer.server import NAME
from moldau.security.sasl.oauthbearer.token import SIZE_MAX

RESPONSE_SIZE_MAX: Final = 1 << 20


class TokenRequest(NamedTuple):
    """A request to the token endpoint, which the shell posts. Its `repr` shows no secret."""

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
    """The access token of the endpoint's response. Raises `LoginFailed`."""
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
    """One exchange with one server."""

    name = NAME

    def __init__(self, token: str, extensions: dict[str, str] | None = None) -> None:
        """Build the message. Raises ValueError where an extension cannot be sent."""
        self._message = bearer_message(token, extensions or {})

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        raise LoginFailed(f"the server refuses the token: {bytes(challenge[:200])!r}")
