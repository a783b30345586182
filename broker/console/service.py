"""The console of one node: the handlers of its HTTP server, and the checks and headers that all of them share.

request ──▶ Host rule ──▶ user ──▶ page ──▶ HTML or JSON, with the headers that bind a browser to this origin
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from moldau import __version__
from moldau.broker.console.change import Change, ChangePreview
from moldau.broker.console.cluster_pages import PAGES as CLUSTER_PAGES
from moldau.broker.console.decoding.texts import escape_unprintable
from moldau.broker.console.group_pages import PAGES as GROUP_PAGES
from moldau.broker.console.kafka_client import ConsolePorts, KafkaClient, Unanswered
from moldau.broker.console.logins import Logins, check_embedding, check_form_key, check_origin, cookie_of
from moldau.broker.console.page import Page, PageRequest, Refusal
from moldau.broker.console.record_pages import PAGES as RECORD_PAGES
from moldau.broker.console.record_pages import search_records, tail_records
from moldau.broker.console.rendering import Renderer, file_of
from moldau.broker.console.security_pages import PAGES as SECURITY_PAGES
from moldau.broker.console.topic_pages import PAGES as TOPIC_PAGES
from moldau.broker.console.transaction_pages import PAGES as TRANSACTION_PAGES
from moldau.broker.http.server import (
    Handler,
    HttpRequest,
    HttpResponse,
    Resources,
    StreamResponse,
    host_of,
    is_ip_address,
    plain_response,
)
from moldau.security.access import CLUSTER_NAME, Access, AclOperation, ResourceKind

log = logging.getLogger("moldau.console")
"""The logger that gets a line for each change that a user makes."""
PAGES: Final = (*CLUSTER_PAGES, *TOPIC_PAGES, *RECORD_PAGES, *GROUP_PAGES, *TRANSACTION_PAGES, *SECURITY_PAGES)
NAVIGATION: Final = (
    ("/", "Cluster"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/permissions", "Permissions"),
    ("/directories", "Log directories"),
)
FILES: Final = {"style.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"}
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
FIELDS_MAX: Final = 1_200
"""The most fields of a form. The form of a preview has one for each partition that is changed."""
CHALLENGE: Final = (("WWW-Authenticate", 'Basic realm="Moldau", charset="UTF-8"'),)
FORM: Final = "application/x-www-form-urlencoded"
HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""The HTTP headers of pages and files. With them a page loads styles and scripts only from this node, is never in a
frame, and sends forms only to this node. With the referrer policy `no-referrer` a browser would send `null` as the
origin of a form.
"""


class Console:
    """The console of one node."""

    def __init__(self, ports: ConsolePorts) -> None:
        self._ports = ports
        self._renderer = Renderer(ports.environment, ports.offload)
        self._hosts = host_names(ports)
        self._logins = Logins(ports)

    def resources(self) -> Resources:
        """The handlers of all pages, files and forms, by path and method."""
        made: dict[str, dict[str, Handler]] = {page.path: {"GET": self._page(page)} for page in PAGES}
        made |= {f"/static/{name}": {"GET": self._file(name)} for name in FILES}
        if self._ports.config.flag("moldau.console.writes"):
            from moldau.broker.console.changes import CHANGES  # A console without changes does not need its memory.

            for path, change in CHANGES.items():
                made.setdefault(path, {})["POST"] = self._change(change)
        made["/topics/{name}/records/tail"] = {"GET": self._stream(tail_records)}
        made["/topics/{name}/records/search"] = {"GET": self._stream(search_records)}
        made["/login"] = {"GET": self.show_login, "POST": self.log_in}
        made["/logout"] = {"POST": self.log_out}
        return made

    def _page(self, page: Page) -> Handler:
        async def show(request: HttpRequest) -> HttpResponse:
            wants_json = is_for_program(request)
            try:
                visit = self._visit(request)
                if visit is None:
                    return self._to_login(request, wants_json)
                value = await page.describe(visit)
                if wants_json:
                    return HttpResponse(200, JSON, await self._renderer.json(value), HEADERS)
                values = {"page": value, "visit": visit, **self._around(request)}
                return HttpResponse(200, HTML, await self._renderer.html(page.template, values), HEADERS)
            except Refusal as refusal:
                return await self._refused(request, refusal)
            except Unanswered as unanswered:
                return await self._refused(request, Refusal(503, str(unanswered)))

        return show

    def _visit(self, request: HttpRequest) -> PageRequest | None:
        """The visit of the user that a request's session belongs to; None if the user has to log in first. Raises
        `Refusal`.
        """
        self._check_host(request)
        check_embedding(request)
        access = self._logins.access_of(request)
        if access is None:
            return None
        client = KafkaClient(self._ports, access, request.client_host)
        return PageRequest(client, request.path, request.variables, request.query)

    def _stream(self, begin: Callable[[PageRequest, str], Awaitable[AsyncIterator[bytes]]]) -> Handler:
        async def stream(request: HttpRequest) -> HttpResponse | StreamResponse:
            try:
                visit = self._visit(request)
                if visit is None:
                    raise Refusal(401, "log in first")
                events = await begin(visit, request.headers.get("last-event-id", ""))
            except Refusal as refusal:
                return HttpResponse(refusal.status, JSON, json.dumps({"error": str(refusal)}) + "\n", HEADERS)
            return StreamResponse("text/event-stream; charset=utf-8", events, HEADERS)

        return stream

    def _change(self, change: Change) -> Handler:
        async def make(request: HttpRequest) -> HttpResponse:
            try:
                visit = self._visit(request)
                if visit is None:
                    return self._to_login(request, is_for_program(request))
                check_origin(request)
                form = form_of(request)
                check_form_key(self._logins.session_of(request), form.get("form_key", ""))
                made = await change(visit, form)
            except Refusal as refusal:
                log.info("refused to %s: %s %s", request.client_host, request.path, escape_unprintable(str(refusal)))
                return await self._refused(request, refusal)
            except Unanswered as unanswered:
                return await self._refused(request, Refusal(503, str(unanswered)))
            if isinstance(made, ChangePreview):
                values = {"page": made, **self._around(request)}
                return HttpResponse(200, HTML, await self._renderer.html("preview.html", values), HEADERS)
            principal = visit.client.access.principal
            log.warning(
                "%s at %s: %s", escape_unprintable(str(principal)), request.client_host, escape_unprintable(made.what)
            )
            return HttpResponse(303, HTML, "", (*HEADERS, ("Location", made.location)))

        return make

    # Logins

    def behind_login(self, handler: Handler) -> Handler:
        """Wrap a handler that gives programs information about the whole cluster, such as the one of `/metrics`. If the
        console asks for a login, the wrapped handler asks for one too, and the user needs DESCRIBE on the cluster. If
        `moldau.metrics.login` is off, the handler is returned unchanged.

        The Host field is not checked. That check protects against pages of other sites, which have neither the cookie
        nor a password.
        """

        async def answer(request: HttpRequest) -> HttpResponse | StreamResponse:
            try:
                if self._logins.is_needed:
                    check_embedding(request)
                    check_describes_cluster(await self._logins.access_of_program(request))
            except Refusal as refusal:
                refused = plain_response(refusal.status, str(refusal))
                return refused._replace(headers=CHALLENGE) if refusal.status == 401 else refused
            return await handler(request)

        return answer if self._ports.config.flag("moldau.metrics.login") else handler

    def _to_login(self, request: HttpRequest, wants_json: bool) -> HttpResponse:
        if wants_json:
            return HttpResponse(401, JSON, json.dumps({"error": "log in by POST /login first"}) + "\n", HEADERS)
        return HttpResponse(303, HTML, "", (*HEADERS, ("Location", "/login")))

    async def show_login(self, request: HttpRequest) -> HttpResponse:
        """Show the login form."""
        try:
            self._check_host(request)
        except Refusal as refusal:
            return await self._refused(request, refusal)
        return await self._login_form(request, 200, "")

    async def _login_form(self, request: HttpRequest, status: int, error: str) -> HttpResponse:
        logins = {"takes_password": self._logins.takes_password, "takes_token": self._logins.takes_token}
        html = await self._renderer.html("login.html", {"error": error, **logins, **self._around(request)})
        return HttpResponse(status, HTML, html, HEADERS)

    async def log_in(self, request: HttpRequest) -> HttpResponse:
        """Log a user in with the fields of the login form, and redirect the browser to the first page."""
        try:
            self._check_host(request)
            check_origin(request)
            if not self._logins.is_needed:
                raise Refusal(400, "the listeners of this broker ask for no login")
            form = form_of(request)
        except Refusal as refusal:
            return await self._refused(request, refusal)
        try:
            session_id = await self._logins.log_in(request, form)
        except Refusal as refusal:
            return await self._login_form(request, refusal.status, str(refusal))
        cookie = ("Set-Cookie", cookie_of(request, session_id))
        return HttpResponse(303, HTML, "", (*HEADERS, ("Location", "/"), cookie))

    async def log_out(self, request: HttpRequest) -> HttpResponse:
        """End the session of a request, and redirect the browser to the login form."""
        try:
            self._check_host(request)
            check_origin(request)
            check_form_key(self._logins.session_of(request), form_of(request).get("form_key", ""))
        except Refusal as refusal:
            return await self._refused(request, refusal)
        self._logins.log_out(request)
        cookie = ("Set-Cookie", f"{cookie_of(request, '')}; Max-Age=0")
        return HttpResponse(303, HTML, "", (*HEADERS, ("Location", "/login"), cookie))

    async def _refused(self, request: HttpRequest, refusal: Refusal) -> HttpResponse:
        if is_for_program(request):
            return HttpResponse(refusal.status, JSON, json.dumps({"error": str(refusal)}) + "\n", HEADERS)
        html = await self._renderer.html("refusal.html", {"refusal": refusal, **self._around(request)})
        return HttpResponse(refusal.status, HTML, html, HEADERS)

    def _around(self, request: HttpRequest) -> dict[str, object]:
        """The values that every template uses, beside those of its page."""
        session = self._logins.session_of(request)
        return {
            "navigation": NAVIGATION,
            "path": request.path,
            "node_id": self._ports.config.node_id,
            "cluster_id": self._ports.cluster.id,
            "cluster_name": self._ports.config.text_or_none("moldau.console.name") or self._ports.cluster.id,
            "now_ms": self._ports.environment.wall_ms(),
            "version": __version__,
            "writes": self._ports.config.flag("moldau.console.writes"),
            "user": None if session is None else str(session.access.principal),
            "form_key": "" if session is None else session.form_key,
        }

    def _file(self, name: str) -> Handler:
        async def send(request: HttpRequest) -> HttpResponse:
            body = await self._ports.offload(partial(file_of, f"static/{name}"))
            return HttpResponse(200, FILES[name], body, HEADERS)

        return send

    def _check_host(self, request: HttpRequest) -> None:
        """Raise `Refusal` for a request under a foreign host name. The name of another site may resolve to this node's
        address, and scripts of that site could then read the pages (DNS rebinding). IP addresses and known names are
        allowed.
        """
        host = host_of(request)
        if host not in self._hosts and not is_ip_address(host):
            raise Refusal(421, f"the console is not served as {host[:200]!r}; moldau.console.hosts may name it")


def host_names(ports: ConsolePorts) -> frozenset[str]:
    """The host names under which browsers may reach the console."""
    told = [each.host for each in ports.config.advertised_listeners]
    own = [each.host or "" for each in ports.listeners]
    return frozenset(each.lower() for each in ("localhost", *told, *own, *ports.config.entries("moldau.console.hosts")))


def check_describes_cluster(access: Access | None) -> None:
    """Raise `Refusal` if a program has named no user, or if its user may not describe the cluster."""
    if access is None:
        raise Refusal(401, "log in as a user of the listener by HTTP Basic or a bearer token, or in the console")
    if not access.is_unrestricted and not access.allows(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        raise Refusal(403, f"{access.principal} needs DESCRIBE on the cluster")


def prefers_json(accept: str) -> bool:
    """Whether an Accept header prefers JSON to HTML: it names JSON, and not HTML before it."""
    kinds: Iterable[str] = (each.partition(";")[0].strip() for each in accept.split(","))
    for kind in kinds:
        if kind in (JSON, "text/html"):
            return kind == JSON
    return False


def is_for_program(request: HttpRequest) -> bool:
    """Whether a request asks for JSON."""
    return request.query.get("format") == "json" or prefers_json(request.headers.get("accept", ""))


def form_of(request: HttpRequest) -> dict[str, str]:
    """The fields of the form in the body of a request. Raises `Refusal`."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != FORM:
        raise Refusal(415, f"the Content-Type must be {FORM}")
    try:
        text = request.body.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Refusal(400, "the body is not that of a form") from None
