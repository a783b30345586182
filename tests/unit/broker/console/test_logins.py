"""What a user may see in the console: names of hosts, logins, sessions, and requests of foreign origins."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from urllib.parse import urlencode

from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import PatternType, PermissionType
from moldau.security.sasl.oauthbearer.token import unsecured_token
from moldau.security.sasl.scram.credential import ScramMechanism
from tests.conformance.acl_requests.asked import made
from tests.support.console_client import HTTP_PORT, SETTINGS, get, json_of, send
from tests.support.node import HOST, Node, serve_and, serve_secured_and
from tests.support.scram_login import password_of

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


TOKENS = {
    **{name: value for name, value in SECURED.items() if "plain.sasl.jaas" not in name},
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="admin";'
    ),
}
"""The same by OAUTHBEARER with tokens that are not signed."""


async def send_token(token: str) -> tuple[int, str]:
    """The status of a login by a token, and the cookie."""
    status, fields, _ = await send("POST", "/login", urlencode({"token": token}).encode(), {**FORM, "Origin": ORIGIN})
    return status, fields.get("set-cookie", "").partition(";")[0]


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


def test_a_page_of_another_site_neither_loads_nor_reads_one() -> None:
    async def story(node: Node) -> None:
        foreign = {"Sec-Fetch-Site": "cross-site"}
        assert (await get("/topics", **foreign, **{"Sec-Fetch-Mode": "no-cors"}))[0] == 403
        assert (await get("/topics", **foreign, **{"Sec-Fetch-Mode": "navigate"}))[0] == 200
        assert (await get("/topics", **{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}))[0] == 200

    serve_and(story, **SETTINGS)


def test_a_token_logs_in_where_the_listener_takes_tokens() -> None:
    async def story(node: Node) -> None:
        html = (await get("/login"))[2]
        assert 'name="token"' in html and 'name="password"' not in html
        assert (await log_in("admin", "admin-secret"))[0] == 403
        token = unsecured_token("alice", node.broker.environment.wall_ms(), 60_000)
        for refused, status in (("a.b.c", 401), (f"{token}\x01auth=x", 400), (token[:-2], 401)):
            assert (await send_token(refused))[0] == status
        status, cookie = await send_token(f" {token}\n")
        assert status == 303
        assert "User:alice" in (await get("/", Cookie=cookie))[2]
        assert (await json_of("/topics", Cookie=cookie))["topics"]["total"] == 0
        await asyncio.sleep(61)
        assert (await get("/", Cookie=cookie))[0] == 303, "the session ends with the token"

    serve_secured_and(story, TOKENS)


def test_a_user_sees_the_endpoints_of_its_own_listener() -> None:
    async def story(node: Node) -> None:
        await asyncio.sleep(2)  # The broker registers.
        for user, seen in (("admin", {"SASL_PLAINTEXT", "OTHER"}), ("alice", {"SASL_PLAINTEXT"})):
            _, cookie = await log_in(user, f"{user}-secret")
            assert (await json_of("/brokers/1", Cookie=cookie))["endpoints"].keys() == seen
            (broker,) = (await json_of("/", Cookie=cookie))["brokers"]
            assert broker["address"] == f"{HOST}:9092"

    further = {
        "listeners": f"{SECURED['listeners']},OTHER://:9094",
        "advertised.listeners": f"{SECURED['advertised.listeners']},OTHER://{HOST}:9094",
        "listener.security.protocol.map": f"{SECURED['listener.security.protocol.map']},OTHER:PLAINTEXT",
        "inter.broker.listener.name": "OTHER",
    }
    serve_secured_and(story, SECURED | further)


def test_the_cookie_of_a_page_that_came_under_tls_is_sent_under_tls_alone() -> None:
    async def story(node: Node) -> None:
        body = urlencode({"user": "admin", "password": "admin-secret"}).encode()
        for scheme, is_secure in (("http", False), ("https", True)):
            headers = {**FORM, "Origin": f"{scheme}://{HOST}:{HTTP_PORT}"}
            status, fields, _ = await send("POST", "/login", body, headers)
            assert (status, "; Secure" in fields["set-cookie"]) == (303, is_secure)

    serve_secured_and(story, SECURED)


def test_a_user_logs_in_by_whichever_mechanism_knows_the_password() -> None:
    async def story(node: Node) -> None:
        _, admin = await log_in("admin", "admin-secret")
        assert "User:admin" in (await get("/", Cookie=admin))[2], "by PLAIN, which is not the first that is offered"
        client = await node.connect()
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        request = SaslAuthenticateRequest(auth_bytes=b"\0admin\0admin-secret")
        assert (await client.ask(request, 2)).error_code == 0
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = f"user-{mechanism.name[-3:]}"
            assert (await client.ask(password_of(user, "secret", mechanism), 0)).results[0].error_code == 0
            await asyncio.sleep(0.1)
            assert (await log_in(user, "wrong"))[0] == 401
            status, cookie = await log_in(user, "secret")
            assert status == 303, user
            assert f"User:{user}" in (await get("/", Cookie=cookie))[2]

    serve_secured_and(story, {**SECURED, "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN"})


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


def basic(text: str) -> str:
    """The value of the field `Authorization`."""
    return f"Basic {b64encode(text.encode()).decode()}"


def test_metrics_ask_for_the_login_of_the_console_and_probes_do_not() -> None:
    async def story(node: Node) -> None:
        status, fields, text = await get("/metrics")
        assert (status, fields["www-authenticate"]) == (401, 'Basic realm="Moldau", charset="UTF-8"')
        assert "kafka_" not in text
        for wrong in ("admin:wrong", "nobody:admin-secret", ":"):
            status, fields, text = await get("/metrics", Authorization=basic(wrong))
            assert (status, "www-authenticate" in fields, "kafka_" in text) == (401, True, False), wrong
        for malformed in (basic("admin"), "Basic %%%", "Basic", "Basic /w=="):
            assert (await get("/metrics", Authorization=malformed))[0] == 400, malformed
        status, fields, text = await get("/metrics", Authorization=basic("admin:admin-secret"))
        assert status == 200 and "kafka_server_kafkaserver_brokerstate" in text and "set-cookie" not in fields
        status, _, text = await get("/metrics", Authorization=basic("alice:alice-secret"))
        assert (status, text) == (403, "User:alice needs DESCRIBE on the cluster\n")
        _, cookie = await log_in("admin", "admin-secret")
        assert (await get("/metrics", Cookie=cookie))[0] == 200
        foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert (await get("/metrics", Authorization=basic("admin:admin-secret"), **foreign))[0] == 403
        assert (await get("/healthz"))[0] == (await get("/readyz"))[0] == 200

    serve_secured_and(story, SECURED)


def test_a_user_who_may_describe_the_cluster_sees_its_metrics() -> None:
    async def story(node: Node) -> None:
        request = made(
            AclCreation,
            resource_type=ResourceKind.CLUSTER,
            resource_name="kafka-cluster",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=AclOperation.DESCRIBE,
            permission_type=PermissionType.ALLOW,
        )
        client = await node.connect()
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await client.ask(SaslAuthenticateRequest(auth_bytes=b"\0admin\0admin-secret"), 2)
        assert (await client.ask(CreateAclsRequest(creations=[request]), 3)).results[0].error_code == 0
        await asyncio.sleep(0.1)
        assert (await get("/metrics", Authorization=basic("alice:alice-secret")))[0] == 200

    serve_secured_and(story, SECURED)


def test_metrics_take_a_token_and_stay_open_where_the_setting_says_so() -> None:
    async def token_story(node: Node) -> None:
        assert (await get("/metrics"))[0] == 401
        token = unsecured_token("admin", node.broker.environment.wall_ms(), 60_000)
        assert (await get("/metrics", Authorization=f"Bearer {token}"))[0] == 200
        assert (await get("/metrics", Authorization=f"Bearer {token[:-2]}"))[0] == 401
        assert (await get("/metrics", Authorization=basic("admin:admin-secret")))[0] == 403

    async def open_story(node: Node) -> None:
        assert (await get("/metrics"))[0] == 200
        assert (await get("/topics"))[0] == 303

    serve_secured_and(token_story, TOKENS)
    serve_secured_and(open_story, {**SECURED, "moldau.metrics.login": "false"})


def test_a_program_that_leaves_within_its_refused_login_is_no_bug() -> None:
    """The listener delays the refusal. An exception in the node fails the simulation."""

    async def story(node: Node) -> None:
        _, writer = await asyncio.open_connection(HOST, HTTP_PORT)
        field = f"Authorization: {basic('admin:wrong')}"
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: {HOST}\r\n{field}\r\n\r\n".encode())
        await asyncio.sleep(0.5)
        writer.close()
        await asyncio.sleep(2)

    serve_secured_and(story, {**SECURED, "connection.failed.authentication.delay.ms": "1000"})
