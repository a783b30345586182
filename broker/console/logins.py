"""Logins of console users. Finds the user of a request, if the listeners of the broker demand a login of their clients.

    POST /login ──▶ SASL exchange with this broker's listener, in the process ──▶ session: a random id in a cookie

A program sends its credentials in each request instead (`Authorization`), and gets no session.

A session holds the principal, so that a page shows what the ACLs allow this principal. Neither password nor token is
kept. A request that changes something, also a login, must come from a page of this console.
"""

from __future__ import annotations

import contextlib
import ipaddress
from binascii import a2b_base64
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.broker.apis.forwarding import StandInConnection
from moldau.broker.config.sasl import sasl_settings
from moldau.broker.config.tls import ENCRYPTED
from moldau.broker.console.kafka_client import CLIENT_ID, ConsolePorts, response_when_complete
from moldau.broker.console.page import Refusal
from moldau.broker.http.server import HttpRequest
from moldau.broker.network.route import FrameHook, RequestContext, Route
from moldau.protocol.schema import spec_of
from moldau.security.access import Access
from moldau.security.principal import ANONYMOUS
from moldau.security.sasl.mechanism import ClientMechanism, LoginFailed

if TYPE_CHECKING:
    from moldau.broker.network.connection import Connection

COOKIE: Final = "moldau_session"
ID_SIZE: Final = 32
IDLE_MS: Final = 1_800_000
"""The time (ms) without a request after which a session ends."""
SESSIONS_MAX: Final = 200
"""The most sessions. If there are more, a login ends the session that has been idle longest."""
LOGINS_MAX: Final = 16
"""The most logins at the same time. Refused logins take as long as the listener delays their answer, so their number
must be limited.
"""
STEPS_MAX: Final = 8
SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class Session:
    """The session of one user."""

    def __init__(self, access: Access, client_host: str, form_key: str, ends_ms: int | None) -> None:
        self.access = access
        self.client_host = client_host
        self.form_key = form_key
        """A secret in the forms of the session's pages. Pages of other origins do not know it."""
        self.ends_ms = ends_ms
        """The time on the monotonic clock at which the login expires; None if it does not expire."""
        self.used_ms = 0


class LoginClient(StandInConnection):
    """Stands for a client's connection in a login, so that the listener makes the same SASL exchange with it."""

    def __init__(self, ports: ConsolePorts, client_host: str) -> None:
        super().__init__(ports.listener, ports.listener.access_of(ANONYMOUS, client_host), client_host)
        self.routes: Mapping[int, Route] = ports.listener.routes
        self.request_size_max = 0
        self.hook: FrameHook | None = None


class LoginOutcome(NamedTuple):
    """The result of a SASL exchange that succeeded."""

    access: Access
    session_ms: int
    """The time (ms) after which the login expires; 0 if it does not expire."""


class Logins:
    """The sessions of one node's console. They are lost when the process ends."""

    def __init__(self, ports: ConsolePorts) -> None:
        self._ports = ports
        self._sessions: dict[str, Session] = {}
        """The sessions by id; the one used last is at the end."""
        self._under_way = 0

    @property
    def is_needed(self) -> bool:
        """Whether users have to log in."""
        return self._ports.listener.security.has_login

    @property
    def takes_password(self) -> bool:
        """Whether a user may log in by name and password."""
        return any(each in self._offered for each in (*SCRAM, PLAIN))

    @property
    def takes_token(self) -> bool:
        """Whether a user may log in with a token of an identity provider."""
        return OAUTHBEARER in self._offered

    @property
    def _offered(self) -> tuple[str, ...]:
        if not self.is_needed:
            return ()
        return sasl_settings(self._ports.config, self._ports.listener.name).mechanisms

    def access_of(self, request: HttpRequest) -> Access | None:
        """The access of the user that a request's session belongs to, or of the anonymous user if the listeners demand
        no login. None if the user has to log in first. Raises `Refusal`.
        """
        listener = self._ports.listener
        if self.is_needed:
            session = self.session_of(request)
            return None if session is None else session.access
        if any(each.security.principal_of is not None for each in self._ports.listeners):
            raise Refusal(403, "clients of this broker show certificates, which the console does not ask for")
        return listener.access_of(ANONYMOUS, request.client_host)

    def session_of(self, request: HttpRequest) -> Session | None:
        """The session that the cookie of a request names. None if there is no such session, if it has expired, or if it
        was begun from another address.
        """
        session_id = session_id_of(request)
        session = self._sessions.get(session_id)
        now_ms = self._ports.environment.monotonic_ms()
        if session is None or session.client_host != request.client_host:
            return None
        if now_ms - session.used_ms > IDLE_MS or (session.ends_ms is not None and now_ms > session.ends_ms):
            del self._sessions[session_id]
            return None
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    async def log_in(self, request: HttpRequest, form: Mapping[str, str]) -> str:
        """Log a user in with the form fields `user` and `password`, or with `token`. Returns the id of the new session.
        Raises `Refusal`.
        """
        outcome = await self._outcome(request, form)
        entropy, now_ms = self._ports.environment.entropy, self._ports.environment.monotonic_ms()
        ends_ms = now_ms + outcome.session_ms if outcome.session_ms else None
        session = Session(outcome.access, request.client_host, entropy(ID_SIZE).hex(), ends_ms)
        session.used_ms = now_ms
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session_id = entropy(ID_SIZE).hex()
        self._sessions[session_id] = session
        return session_id

    async def access_of_program(self, request: HttpRequest) -> Access | None:
        """The access of the user of a program, which its request names by the cookie of a session, by HTTP Basic, or by
        a bearer token. None if the request names no user. Raises `Refusal`.
        """
        session = self.session_of(request)
        if session is not None:
            return session.access
        form = credentials_of(request)
        return None if form is None else (await self._outcome(request, form)).access

    def log_out(self, request: HttpRequest) -> None:
        """End the session that the cookie of a request names."""
        self._sessions.pop(session_id_of(request), None)

    async def _outcome(self, request: HttpRequest, form: Mapping[str, str]) -> LoginOutcome:
        """Log a user in. At most `LOGINS_MAX` logins run at the same time. Raises `Refusal`."""
        protocol = self._ports.config.listener_protocols[self._ports.listener.name]
        if protocol in ENCRYPTED and not is_loopback(request.client_host):
            raise Refusal(
                403, "the listeners encrypt logins, and this page does not: log in from this machine, or by a proxy"
            )
        if self._under_way >= LOGINS_MAX:
            raise Refusal(503, "too many logins are under way")
        self._under_way += 1
        try:
            return await self._first_login(request.client_host, self._mechanisms(form))
        except LoginFailed as failed:
            raise Refusal(401, str(failed)) from None
        finally:
            self._under_way -= 1

    async def _first_login(self, client_host: str, mechanisms: list[ClientMechanism]) -> LoginOutcome:
        """Try SASL mechanisms one after the other, and return the outcome of the first that succeeds. If all fail,
        raises the `LoginFailed` of the last one.
        """
        *others, last = mechanisms
        for each in others:
            with contextlib.suppress(LoginFailed):
                return await self._exchange(client_host, each)
        return await self._exchange(client_host, last)

    async def _exchange(self, client_host: str, mechanism: ClientMechanism) -> LoginOutcome:
        """Make a SASL exchange with the listener inside the process. Raises `LoginFailed`."""
        from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
        from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest

        ports = self._ports
        connection = LoginClient(ports, client_host)
        # An exchange uses the few parts of a connection that `LoginClient` has.
        authentication = ports.listener.security.authentication_of(cast("Connection", connection))
        assert authentication is not None, "the listener asks for a login"
        connection.authentication = authentication
        try:
            hello = SaslHandshakeRequest(mechanism=mechanism.name)
            await response_when_complete(authentication.handshake(self._context(connection, hello, 1), hello))
            message: bytes | None = mechanism.first()
            answer = SaslAuthenticateResponse()
            for _ in range(STEPS_MAX):
                if message is None:
                    break
                request = SaslAuthenticateRequest(auth_bytes=message)
                given = await response_when_complete(
                    authentication.authenticate(self._context(connection, request, 2), request)
                )
                assert isinstance(given, SaslAuthenticateResponse)
                answer = given
                if answer.error_code:
                    raise LoginFailed(answer.error_message or "the login failed")
                message = await ports.offload(partial(mechanism.answer, bytes(answer.auth_bytes)))
            return LoginOutcome(connection.access, answer.session_lifetime_ms)
        finally:
            authentication.closed()

    def _context(self, connection: LoginClient, request: object, version: int) -> RequestContext:
        route = self._ports.listener.routes[spec_of(type(request)).key or 0]
        return RequestContext(connection, route, version, 0, CLIENT_ID)

    def _mechanisms(self, form: Mapping[str, str]) -> list[ClientMechanism]:
        """The client sides of the SASL mechanisms to try. A token is for OAUTHBEARER only. A password is for the SCRAM
        mechanisms for which the user has a credential, and for PLAIN, because its users are not known here. Raises
        `Refusal`.
        """
        offered, token = self._offered, form.get("token", "").strip()
        user, password = form.get("user", ""), form.get("password", "")
        if token and OAUTHBEARER in offered:
            from moldau.security.sasl.oauthbearer.exchange import BearerClient

            if not (token.isascii() and token.isprintable() and " " not in token):
                raise Refusal(400, "a token is printable ASCII without blanks")
            return [BearerClient(token)]
        found: list[ClientMechanism] = []
        names = [each for each in SCRAM if each in offered]
        if names:
            from moldau.kraft.image.security.scram_credentials import ScramKey
            from moldau.security.sasl.scram.credential import SCRAM_MECHANISMS
            from moldau.security.sasl.scram.exchange import ScramClient, ScramLogin

            credentials = self._ports.cluster.image.scram.credentials
            known = [each for each in names if ScramKey(user, SCRAM_MECHANISMS[each]) in credentials]
            for name in known or ([] if PLAIN in offered else names[:1]):
                login = ScramLogin(SCRAM_MECHANISMS[name], user, password)
                found.append(ScramClient(login, self._ports.environment.entropy))
        if PLAIN in offered:
            from moldau.security.sasl.plain import PlainClient

            found.append(PlainClient(user, password))
        if found:
            return found
        raise Refusal(403, f"the listener offers {', '.join(offered)}: log in with a token")


def session_id_of(request: HttpRequest) -> str:
    """The session id in the cookie of a request; empty if there is none."""
    for each in request.headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def credentials_of(request: HttpRequest) -> Mapping[str, str] | None:
    """Read the credentials in the `Authorization` header of a request, as the fields of a login form. None if the
    header is missing or of another scheme. Raises `Refusal`.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return {"token": given}
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = a2b_base64(given.strip(), strict_mode=True).decode().partition(":")
    except ValueError:
        colon = ""
    if not colon:
        raise Refusal(400, "the field Authorization does not hold a user and a password in Base64")
    return {"user": user, "password": password}


def cookie_of(request: HttpRequest, session_id: str) -> str:
    """The value of `Set-Cookie` for a session. If the page was loaded over TLS, through a proxy, the browser is told to
    send the cookie only over TLS. The scheme is known from the Origin header.
    """
    secure = "; Secure" if request.headers.get("origin", "").startswith("https://") else ""
    return f"{COOKIE}={session_id}; Path=/; HttpOnly; SameSite=Strict{secure}"


def check_origin(request: HttpRequest) -> None:
    """Raise `Refusal` for a request that changes something, unless its Origin header shows that a page of this console
    sent it.
    """
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if origin not in (f"http://{host}", f"https://{host}") or site != "same-origin":
        raise Refusal(403, f"the request is of a page of {origin[:200] or 'an unknown origin'}, and changes nothing")


def check_embedding(request: HttpRequest) -> None:
    """Raise `Refusal` for a request that a page of another site makes in the background, for example as an image. That
    page could not read the response, but it could make the node do work. A link on another site is allowed.
    """
    headers = request.headers
    if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
        raise Refusal(403, "a page of another site shows nothing of the console")


def check_form_key(session: Session | None, given: str) -> None:
    """Raise `Refusal` for a form that lacks the secret of the session."""
    if session is None:
        return
    from hmac import compare_digest  # It loads OpenSSL, which a node without logins does not have.

    if not compare_digest(session.form_key.encode(), given.encode()):
        raise Refusal(403, "the form is of another session: load its page again")


def is_loopback(host: str) -> bool:
    """Whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
