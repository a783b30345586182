"""SASL in a connection, against a whole simulated broker: the answers were observed of Apache Kafka 4.3.1."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.network.authentication.sasl import LOGIN_S
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from moldau.security.principal import ANONYMOUS, Principal
from tests.support.node import Client, Closed, Node, serve_and

SASL_PORT, RENEWING_PORT = 9094, 9095
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="broker" password="b" user_broker="b" user_alice="pw" user_bob="word";'
PROPERTIES = {
    "listeners": f"PLAINTEXT://:9092,CONTROLLER://:9093,SASL://:{SASL_PORT},RENEWING://:{RENEWING_PORT}",
    "advertised_listeners": f"PLAINTEXT://broker-1:9092,SASL://broker-1:{SASL_PORT},"
    f"RENEWING://broker-1:{RENEWING_PORT}",
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,"
    "RENEWING:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener_name_sasl_plain_sasl_jaas_config": JAAS,
    "listener_name_renewing_plain_sasl_jaas_config": JAAS,
    "listener_name_renewing_plain_connections_max_reauth_ms": "3000",
    "connection_failed_authentication_delay_ms": "250",
}
DELAY_S = 0.25
ALICE, BOB, WRONG = b"\0alice\0pw", b"\0bob\0word", b"\0alice\0wrong"
VERSIONS, METADATA = ApiVersionsRequest(), MetadataRequest(topics=[])
INVALID = "Authentication failed: Invalid username or password"


def tell(story: Callable[[Node, Client], Awaitable[None]], port: int = SASL_PORT) -> None:
    async def run(node: Node) -> None:
        await story(node, await node.connect(port))

    serve_and(run, seed=1, may_halt=False, **PROPERTIES)


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    reply: SaslHandshakeResponse = await client.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    return reply


async def authenticate(client: Client, token: bytes, version: int = 1) -> SaslAuthenticateResponse:
    reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=token), version)
    return reply


async def log_in(client: Client, token: bytes = ALICE) -> SaslAuthenticateResponse:
    assert await handshake(client) == SaslHandshakeResponse(mechanisms=["PLAIN"])
    return await authenticate(client, token)


async def is_served(client: Client) -> bool:
    try:
        await client.ask(METADATA, 9)
    except Closed:
        return False
    return True


async def raw(client: Client, token: bytes) -> bytes:
    client.writer.write(struct.pack(">i", len(token)) + token)
    (size,) = struct.unpack(">i", await client.reader.readexactly(4))
    return await client.reader.readexactly(size)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_that_authenticates_is_served_as_its_principal(version: int) -> None:
    async def story(node: Node, client: Client) -> None:
        await client.ask(VERSIONS, 3)
        assert await handshake(client) == SaslHandshakeResponse(mechanisms=["PLAIN"])
        assert await authenticate(client, ALICE, version) == SaslAuthenticateResponse()
        assert await is_served(client)
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        (connection,) = listener.connections
        assert connection.access.principal == Principal("User", "alice")
        assert listener.security.counts.succeeded == {"PLAIN": 1}

    tell(story)


def test_a_listener_without_sasl_serves_the_anonymous_and_refuses_the_exchange() -> None:
    async def story(node: Node, client: Client) -> None:
        assert await handshake(client) == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        reply = await authenticate(client, ALICE)
        assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)
        (plain,) = (each for each in node.broker.listeners if each.port == 9092)
        (connection,) = plain.connections
        assert connection.access.principal == ANONYMOUS

    tell(story, 9092)


@pytest.mark.parametrize(
    "messages",
    [
        [METADATA],
        [SaslAuthenticateRequest(auth_bytes=ALICE)],
        [VERSIONS, METADATA],
    ],
)
def test_before_the_end_of_the_exchange_nothing_else_is_served(messages: list[object]) -> None:
    async def story(node: Node, client: Client) -> None:
        for message in messages[:-1]:
            await client.ask(message, 1)
        with pytest.raises(Closed):
            await client.ask(messages[-1], 1)
        assert node.broker.listeners[0].malformed_count == 0

    tell(story)


@pytest.mark.parametrize("size", [1, 1000])
def test_within_the_exchange_a_request_gets_its_own_error_before_the_end(size: int) -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client)
        names = [f"topic-{number}-{'x' * 10}" for number in range(size)]
        began_s = asyncio.get_running_loop().time()
        reply: MetadataResponse = await client.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 13
        )
        assert asyncio.get_running_loop().time() - began_s >= DELAY_S
        assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
        told = names if size == 1 else []  # The parts of a large request are not decoded.
        assert [(each.name, each.error_code) for each in reply.topics] == [(name, 34) for name in told]
        with pytest.raises(Closed):
            await client.reply()
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        assert listener.security.counts.failed == {"PLAIN": 1} and listener.malformed_count == 0

    tell(story)


def test_within_the_exchange_a_produce_that_wants_no_answer_gets_none() -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client)
        client.send(ProduceRequest(acks=0, timeout_ms=100, topic_data=[]), 9)
        with pytest.raises(Closed):
            await client.reply()

    tell(story)


def test_a_frame_that_is_too_large_is_not_read_before_the_client_has_authenticated() -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client)
        client.writer.write(struct.pack(">i", 524_289))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.reader.readexactly(1)
        other = await node.connect(SASL_PORT)
        await log_in(other)
        other.send(METADATA, 9)
        other.writer.write(struct.pack(">i", 524_289))
        await other.reply()

    tell(story)


@pytest.mark.parametrize("begins", [False, True])
def test_a_client_that_does_not_log_in_is_disconnected_whatever_it_sends(begins: bool) -> None:
    async def story(node: Node, client: Client) -> None:
        began_s = asyncio.get_running_loop().time()
        if begins:
            await handshake(client)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, Closed)):
            for piece in struct.pack(">i", 100) + bytes(96):  # A request, slowly: the connection is never idle.
                client.writer.write(bytes((piece,)))
                await asyncio.sleep(1)
                if client.reader.at_eof():
                    raise Closed
        assert LOGIN_S - 1 < asyncio.get_running_loop().time() - began_s < LOGIN_S + 2
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        assert listener.security.counts.failed == {"PLAIN" if begins else "none": 1}

    tell(story)


def test_a_client_that_logs_in_stays_and_has_the_same_time_for_a_renewal() -> None:
    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        await asyncio.sleep(2)
        await log_in(client)
        await asyncio.sleep(LOGIN_S + 1)
        assert not client.reader.at_eof()
        await handshake(client)
        await asyncio.sleep(LOGIN_S - 1)
        assert not client.reader.at_eof()
        await asyncio.sleep(2)
        assert client.reader.at_eof()
        listener = next(each for each in node.broker.listeners if each.name == "RENEWING")
        assert listener.security.counts.not_renewed == {"PLAIN": 1}

    tell(story, RENEWING_PORT)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (WRONG, INVALID),
        (b"\0nobody\0pw", INVALID),
        (
            b"bob\0alice\0pw",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"abc", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_a_client_that_fails_is_told_after_a_pause_and_leaves(token: bytes, message: str) -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client)
        before_s = asyncio.get_running_loop().time()
        client.send(SaslAuthenticateRequest(auth_bytes=token), 1)
        reply = await client.reply()
        assert (reply.error_code, reply.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        assert asyncio.get_running_loop().time() - before_s >= DELAY_S
        with pytest.raises(Closed):
            await client.reply()

    tell(story)


def test_the_log_says_once_why_a_login_failed_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node, client: Client) -> None:
        with caplog.at_level(logging.INFO):
            await handshake(client)
            await authenticate(client, WRONG)
            with pytest.raises(Closed):
                await client.ask(METADATA, 9)
        lines = [record.getMessage() for record in caplog.records if "authentication failed" in record.getMessage()]
        assert len(lines) == 1 and "PLAIN" in lines[0] and "'alice'" in lines[0]
        assert "wrong'" not in lines[0].replace("is wrong", "")
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        assert listener.security.counts.failed == {"PLAIN": 1}

    tell(story)


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(version: int) -> None:
    async def story(node: Node, client: Client) -> None:
        reply = await handshake(client, "SCRAM-SHA-256", version)
        assert reply == SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"])
        assert not await is_served(client)

    tell(story)


def test_a_second_handshake_within_an_exchange_is_refused() -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client)
        assert await handshake(client) == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        assert not await is_served(client)

    tell(story)


def test_after_version_0_of_the_handshake_messages_have_no_header() -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client, version=0)
        assert await raw(client, ALICE) == b""
        assert await is_served(client)
        other = await node.connect(SASL_PORT)
        await handshake(other, version=0)
        with pytest.raises(asyncio.IncompleteReadError):
            await raw(other, WRONG)

    tell(story)


def test_afterwards_the_exchange_is_refused_where_sessions_have_no_end() -> None:
    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        assert await handshake(client) == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        late = await authenticate(client, ALICE)
        assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert late.error_message == "SaslAuthenticate request received after successful authentication"
        assert await is_served(client)

    tell(story)


def test_a_client_authenticates_again_before_its_session_ends() -> None:
    async def story(node: Node, client: Client) -> None:
        assert (await log_in(client)).session_lifetime_ms == 3000
        for _ in range(3):
            await asyncio.sleep(2)
            assert (await log_in(client)).session_lifetime_ms == 3000
            assert await is_served(client)
        listener = next(each for each in node.broker.listeners if each.name == "RENEWING")
        assert listener.security.counts.renewed == {"PLAIN": 3}

    tell(story, RENEWING_PORT)


@pytest.mark.parametrize("is_late", [False, True])
def test_when_its_session_is_over_a_client_may_only_authenticate_again(is_late: bool) -> None:
    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        await asyncio.sleep(3.1)
        if is_late:
            await log_in(client)
        assert await is_served(client) is is_late

    tell(story, RENEWING_PORT)


@pytest.mark.parametrize("pause_s", [0.3, 20])
def test_a_session_does_not_end_within_its_renewal(pause_s: float) -> None:
    """A client that sent nothing for long begins its renewal just before the end; it has the time of a login for it."""

    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        await asyncio.sleep(2.9)
        await handshake(client)
        await asyncio.sleep(pause_s)
        assert (await authenticate(client, ALICE)).session_lifetime_ms == 3000
        assert await is_served(client)
        await asyncio.sleep(3.1)
        assert not await is_served(client)

    tell(story, RENEWING_PORT)


@pytest.mark.parametrize("renewals", [1, 2])
def test_a_session_that_was_renewed_ends_after_its_own_time(renewals: int) -> None:
    """It neither ends with the one before nor goes on for ever."""

    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        for _ in range(renewals):
            await asyncio.sleep(2)
            assert (await log_in(client)).session_lifetime_ms == 3000
        await asyncio.sleep(2.9)
        assert await is_served(client), "the session before ended 1.9 s ago"
        await asyncio.sleep(0.2)
        assert not await is_served(client)

    tell(story, RENEWING_PORT)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (BOB, "Cannot change principals during re-authentication from User.alice: User.bob"),
        (WRONG, INVALID),
    ],
)
def test_a_client_that_fails_to_authenticate_again_leaves(token: bytes, message: str) -> None:
    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        reply = await log_in(client, token)
        assert (reply.error_code, reply.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
        assert not await is_served(client)
        listener = next(each for each in node.broker.listeners if each.name == "RENEWING")
        assert listener.security.counts.not_renewed == {"PLAIN": 1}

    tell(story, RENEWING_PORT)


def test_a_client_that_authenticates_again_too_soon_is_refused_and_stays() -> None:
    async def story(node: Node, client: Client) -> None:
        await log_in(client)
        await log_in(client)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)

    tell(story, RENEWING_PORT)


def test_a_client_that_leaves_within_its_exchange_leaves_nothing_behind() -> None:
    async def story(node: Node, client: Client) -> None:
        await handshake(client)
        client.send(SaslAuthenticateRequest(auth_bytes=WRONG), 1)
        await asyncio.sleep(0.01)
        client.close()
        await asyncio.sleep(2 * DELAY_S)
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        assert not listener.connections

    tell(story)
