"""The console of one node: the resources of its HTTP server, and what holds for all of them.

request ──▶ Host rule ──▶ user ──▶ page ──▶ HTML or JSON, with the headers that bind a browser to this origin
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from functools import partial
from typing import Final

from moldau import __version__
from moldau.broker.console.cluster_pages import PAGES as CLUSTER_PAGES
from moldau.broker.console.group_pages import PAGES as GROUP_PAGES
from moldau.broker.console.kafka_client import ConsolePorts, KafkaClient, Unanswered
from moldau.broker.console.page import Page, Refusal, Visit, as_json
from moldau.broker.console.rendering import Renderer, file_of
from moldau.broker.console.topic_pages import PAGES as TOPIC_PAGES
from moldau.broker.http.server import Answer, Handler, HttpRequest, Resources
from moldau.security.access import Access
from moldau.security.principal import ANONYMOUS

PAGES: Final = (*CLUSTER_PAGES, *TOPIC_PAGES, *GROUP_PAGES)
NAVIGATION: Final = (("/", "Cluster"), ("/topics", "Topics"), ("/groups", "Groups"), ("/directories", "Directories"))
FILES: Final = {"style.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"}
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""A page loads its own style and script, is in no frame, and sends forms to this node alone."""


class Console:
    """The console. `resources` are its paths."""

    def __init__(self, ports: ConsolePorts) -> None:
        self._ports = ports
        self._renderer = Renderer(ports.environment)
        self._hosts = host_names(ports)

    def resources(self) -> Resources:
        """The pages and files, each behind the checks that hold for all."""
        made: dict[str, dict[str, Handler]] = {page.path: {"GET": self._page(page)} for page in PAGES}
        made |= {f"/static/{name}": {"GET": self._file(name)} for name in FILES}
        return made

    def _page(self, page: Page) -> Handler:
        async def show(request: HttpRequest) -> Answer:
            wants_json = request.query.get("format") == "json" or prefers_json(request.headers.get("accept", ""))
            try:
                self._check_host(request)
                access = self._access(request)
                client = KafkaClient(self._ports, access, request.client_host)
                visit = Visit(client, request.path, request.variables, request.query)
                value = await page.describe(visit)
            except Refusal as refusal:
                return await self._refused(request, refusal, wants_json)
            except Unanswered as unanswered:
                return await self._refused(request, Refusal(503, str(unanswered)), wants_json)
            if wants_json:
                return Answer(200, JSON, json.dumps(as_json(value)) + "\n", HEADERS)
            html = await self._renderer.html(page.template, {"page": value, "visit": visit, **self._around(request)})
            return Answer(200, HTML, html, HEADERS)

        return show

    async def _refused(self, request: HttpRequest, refusal: Refusal, wants_json: bool) -> Answer:
        if wants_json:
            return Answer(refusal.status, JSON, json.dumps({"error": str(refusal)}) + "\n", HEADERS)
        html = await self._renderer.html("refusal.html", {"refusal": refusal, **self._around(request)})
        return Answer(refusal.status, HTML, html, HEADERS)

    def _around(self, request: HttpRequest) -> dict[str, object]:
        """What every page shows."""
        return {
            "navigation": NAVIGATION,
            "path": request.path,
            "node_id": self._ports.config.node_id,
            "cluster_id": self._ports.cluster.id,
            "version": __version__,
        }

    def _file(self, name: str) -> Handler:
        async def send(request: HttpRequest) -> Answer:
            body = await self._ports.environment.offload(partial(file_of, f"static/{name}"))
            return Answer(200, FILES[name], body, HEADERS)

        return send

    def _check_host(self, request: HttpRequest) -> None:
        """Refuse a request under a foreign host name: a name of another site may resolve to this node's address, and
        its scripts could read the pages (DNS rebinding). Addresses and known names are allowed. Raises `Refusal`.
        """
        host = host_of(request.headers.get("host", ""))
        if host not in self._hosts and not is_address(host):
            raise Refusal(421, f"the console is not served as {host[:200]!r}; moldau.console.hosts may name it")

    def _access(self, request: HttpRequest) -> Access:
        listener = self._ports.listener
        access = listener.access_of(ANONYMOUS, request.client_host)
        if listener.security.has_login or not access.is_unrestricted:
            raise Refusal(403, "the listeners of this node ask for a login, which the console does not take yet")
        return access


def host_names(ports: ConsolePorts) -> frozenset[str]:
    """The names by which browsers may reach the console."""
    told = [each.host for each in ports.config.advertised_listeners]
    own = [each.host or "" for each in ports.listeners]
    return frozenset(each.lower() for each in ("localhost", *told, *own, *ports.config.entries("moldau.console.hosts")))


def host_of(field: str) -> str:
    """The name or address in a Host field, without the port."""
    text = field.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def prefers_json(accept: str) -> bool:
    """Whether an Accept field names JSON, and not HTML before it."""
    kinds: Iterable[str] = (each.partition(";")[0].strip() for each in accept.split(","))
    for kind in kinds:
        if kind in (JSON, "text/html"):
            return kind == JSON
    return False
