"""What a user may see in the console: names of hosts, logins, sessions, and requests of foreign origins."""

from __future__ import annotations

from urllib.parse import urlencode

from tests.support.console_client import HTTP_PORT, SETTINGS, get, json_of, send
from tests.support.node import HOST, Node, serve_and, serve_secured_and

ORIGIN = f"http://{HOST}:{HTTP_PORT}"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
)


SECURED = {
    "moldau.http.listener": f"http://:{HTTP_PORT}",
    "moldau.console": "true",
    "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": f"SASL_PLAINTEXT://{HOST}:9092",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
"""A node whose listener asks for a login by PLAIN, and whose authorizer has no ACLs."""


async def log_in(user: str, password: str, **headers: str) -> tuple[int, str]:
    """The status of a login, and the cookie."""
    body = urlencode({"user": user, "password": password}).encode()
    status, fields, _ = await send("POST", "/login", body, {**FORM, "Origin": ORIGIN, **headers})
    return status, fields.get("set-cookie", "").partition(";")[0]


def test_a_foreign_host_name_is_refused_and_an_address_is_not() -> None:
    async def story(node: Node) -> None:
        for host, status in (("evil.example", 421), ("10.0.0.7:9464", 200), ("[::1]:9464", 200), ("localhost", 200)):
            assert (await get("/", Host=host))[0] == status, host
        assert (await get("/", Host="console.example"))[0] == 200

    serve_and(story, **SETTINGS, moldau_console_hosts="console.example")


def test_without_a_login_there_is_none() -> None:
    async def story(node: Node) -> None:
        assert (await log_in("a", "b"))[0] == 400

    serve_and(story, **SETTINGS)


def test_a_page_shows_what_the_user_of_the_session_may_describe() -> None:
    async def story(node: Node) -> None:
        status, fields, _ = await get("/topics")
        assert (status, fields["location"]) == (303, "/login")
        assert (await get("/topics?format=json"))[0] == 401
        assert (await get("/topics/orders/records/tail"))[0] == 401
        assert (await get("/login"))[0] == 200
        assert (await log_in("admin", "wrong"))[0] == 401
        status, admin = await log_in("admin", "admin-secret")
        assert status == 303
        assert (await json_of("/permissions", Cookie=admin))["errors"].keys() == {"tokens"}
        page = await json_of("/", Cookie=admin)
        assert page["quorum"] is not None
        _, alice = await log_in("alice", "alice-secret")
        assert (await json_of("/", Cookie=alice))["quorum"] is None
        assert (await get("/directories", Cookie=alice))[0] == 403
        assert (await json_of("/topics", Cookie=alice))["topics"]["total"] == 0
        assert "CLUSTER_AUTHORIZATION_FAILED" in str((await json_of("/permissions", Cookie=alice))["errors"])
        assert "User:alice" in (await get("/", Cookie=alice))[2]

    serve_secured_and(story, SECURED)


def test_a_foreign_origin_neither_logs_in_nor_out() -> None:
    async def story(node: Node) -> None:
        assert (await log_in("admin", "admin-secret", Origin="http://evil.example"))[0] == 403
        assert (await log_in("admin", "admin-secret", **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
        _, cookie = await log_in("admin", "admin-secret")
        out = {**FORM, "Cookie": cookie}
        assert (await send("POST", "/logout", b"form_key=", {**out, "Origin": "null"}))[0] == 403
        assert (await send("POST", "/logout", b"form_key=guessed", {**out, "Origin": ORIGIN}))[0] == 403
        html = (await get("/", Cookie=cookie))[2]
        key = html.partition('name="form_key" value="')[2].partition('"')[0]
        body = urlencode({"form_key": key}).encode()
        assert (await send("POST", "/logout", body, {**out, "Origin": ORIGIN}))[0] == 303
        assert (await get("/", Cookie=cookie))[0] == 303

    serve_secured_and(story, SECURED)
