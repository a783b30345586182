"""What a broker of Apache Kafka passes on for its clients, in an envelope at the controller listener."""

from __future__ import annotations

from typing import Any, cast

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.apis.catalogue import LINES, routes
from moldau.broker.apis.needs import open_to_all
from moldau.broker.apis.topics import create_topics
from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.protocol.compiler import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import response_of
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.messages.vote import VoteRequest
from moldau.protocol.primitives import TEXT_SIZE_MAX
from tests.support.node import CONTROLLER_PORT, Client, Node, serve_and

ANONYMOUS = b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
LOOPBACK = b"\x7f\0\0\1"
CREATE = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
)
LONG = 8_000
"""Topics whose names decode into more bytes than the event loop decodes."""
DELETE_HEADER = b"\0\x14\0\x05\0\0\0\x2a\0\x02me\0"
CREATE_HEADER = b"\0\x13\0\x07\0\0\0\x2a\0\x02me\0"


async def controller(node: Node) -> Client:
    await node.connect()  # it serves: the broker is registered
    return await node.connect(CONTROLLER_PORT)


async def ask(
    client: Client, data: bytes, principal: bytes | None = ANONYMOUS, address: bytes = LOOPBACK
) -> EnvelopeResponse:
    reply = await client.ask(
        EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address), 0
    )
    assert isinstance(reply, EnvelopeResponse)
    return reply


def test_a_request_inside_is_answered_inside() -> None:
    async def story(node: Node) -> None:
        client = await controller(node)
        reply = await ask(client, CREATE_HEADER + encode(CREATE, 7))
        assert reply.error_code == ErrorCode.NONE and reply.response_data is not None
        assert reply.response_data[:5] == b"\0\0\0\x2a\0", "the header: the inner correlation id, no tags"
        created = decode(CreateTopicsResponse, reply.response_data[5:], 7)
        assert [(each.name, each.error_code) for each in created.topics] == [("t", ErrorCode.NONE)], created.topics[
            0
        ].error_message
        assert node.broker.image.topics.by_name("t") is not None
        again = await ask(client, CREATE_HEADER + encode(CREATE, 7))
        assert again.response_data is not None
        refused = decode(CreateTopicsResponse, again.response_data[5:], 7)
        assert refused.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    serve_and(story)


def test_an_answer_that_is_there_at_once_comes_too_and_older_headers_have_no_tags() -> None:
    async def story(node: Node) -> None:
        client = await controller(node)
        asked = DescribeQuorumRequest(
            topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
        )
        reply = await ask(client, b"\0\x37\0\0\0\0\0\x07\xff\xff\0" + encode(asked, 0))
        assert reply.response_data is not None and reply.response_data[:5] == b"\0\0\0\x07\0"
        assert decode(DescribeQuorumResponse, reply.response_data[5:], 0).topics[0].partitions[0].leader_id == 1
        reply = await ask(client, b"\0\x13\0\x02\0\0\0\x08\xff\xff" + encode(CREATE, 2))
        assert reply.response_data is not None and reply.response_data[:4] == b"\0\0\0\x08"
        assert decode(CreateTopicsResponse, reply.response_data[4:], 2).topics[0].name == "t"

    serve_and(story)


def test_a_long_request_is_decoded_and_its_answer_encoded_in_a_thread() -> None:
    async def story(node: Node) -> None:
        client = await controller(node)
        steps = []
        transcoder = node.broker.services.transcoder
        decode_aside, encode_aside = transcoder.decode, transcoder.encode
        transcoder.decode = lambda *given: steps.append("decode") or decode_aside(*given)  # type: ignore[func-returns-value, method-assign]
        transcoder.encode = lambda *given: steps.append("encode") or encode_aside(*given)  # type: ignore[func-returns-value, method-assign]
        names = [f"topic-{number}" for number in range(LONG)]
        long = encode(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 5)
        reply = await ask(client, DELETE_HEADER + long)
        assert reply.response_data is not None and reply.response_data[:5] == b"\0\0\0\x2a\0"
        deleted = decode(DeleteTopicsResponse, reply.response_data[5:], 5)
        assert [(each.name, each.error_code) for each in deleted.responses] == [(name, 3) for name in names]
        assert steps == ["decode", "encode"]
        cut = await ask(client, DELETE_HEADER + long[:-9])
        assert (cut.error_code, cut.response_data) == (ErrorCode.INVALID_REQUEST, None)

    serve_and(story)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\x13\0\x07",
        CREATE_HEADER[:9] + b"\x7f",
        CREATE_HEADER,
        CREATE_HEADER[:-1],
        b"\0\x13\0\x63" + CREATE_HEADER[4:] + encode(CREATE, 7),
        b"\0\x34\0\x02\0\0\0\x2a\0\x02me\0" + encode(VoteRequest(topics=[]), 2),
        b"\0\x03\0\x0c\0\0\0\x2a\0\x02me\0",
        b"\x7f\0\0\0\0\0\0\x2a\xff\xff\0",
    ],
)
def test_what_cannot_be_read_or_may_not_be_inside_is_refused(data: bytes) -> None:
    async def story(node: Node) -> None:
        client = await controller(node)
        reply = await ask(client, data)
        assert (reply.error_code, reply.response_data) == (ErrorCode.INVALID_REQUEST, None)

    serve_and(story)


@pytest.mark.parametrize("principal", [None, b"", b"\0", b"\0\1" + ANONYMOUS[2:], ANONYMOUS[:-1], ANONYMOUS[:9]])
def test_a_principal_that_names_nobody_is_refused(principal: bytes | None) -> None:
    async def story(node: Node) -> None:
        client = await controller(node)
        reply = await ask(client, CREATE_HEADER + encode(CREATE, 7), principal)
        assert reply.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE

    serve_and(story)


def test_an_address_has_four_bytes_or_sixteen() -> None:
    async def story(node: Node) -> None:
        client = await controller(node)
        create = CREATE_HEADER + encode(CREATE, 7)
        assert (await ask(client, create, address=b"\x7f")).error_code == ErrorCode.INVALID_REQUEST
        assert (await ask(client, create, address=bytes(15) + b"\1")).error_code == ErrorCode.NONE

    serve_and(story)


@pytest.mark.parametrize("is_encoded", [False, True])
def test_a_handler_that_fails_ends_its_request_and_not_the_connection(
    is_encoded: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection carries the heartbeats of the broker that sent the envelope, and its other clients' requests."""

    def fail(services: object, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        if is_encoded:
            return CreateTopicsResponse(throttle_time_ms=1 << 40)
        raise ZeroDivisionError

    async def story(node: Node) -> None:
        await node.connect()
        (listener,) = (each for each in node.broker.listeners if each.role is ListenerRole.CONTROLLER)
        monkeypatch.setattr(create_topics, "API", Api(CreateTopicsRequest, controller=fail, needs=open_to_all))
        made = routes(ListenerRole.CONTROLLER, cast("Any", None), [LINES["CreateTopics"]])
        listener.routes = {**listener.routes, **made}
        client = await controller(node)
        for _ in range(2):
            reply = await ask(client, CREATE_HEADER + encode(CREATE, 7))
            assert (reply.error_code, reply.response_data) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)

    serve_and(story)
    assert "a handler failed" in caplog.text and ("struct.error" if is_encoded else "ZeroDivisionError") in caplog.text


def test_a_message_that_repeats_a_long_name_is_cut() -> None:
    """Otherwise one client's mistake ends the connection that all requests of its broker share: a response of version 2
    cannot be encoded, and one of version 7 cannot be decoded."""

    async def story(node: Node) -> None:
        client = await controller(node)
        long = CreatableTopic(name="x" * 32_700, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for version, header in ((2, b"\0\x13\0\x02\0\0\0\x2a\xff\xff"), (7, CREATE_HEADER)):
            reply = await ask(client, header + encode(CreateTopicsRequest(topics=[long]), version))
            assert reply.error_code == ErrorCode.NONE and reply.response_data is not None
            response = response_of(CreateTopicsRequest, version, reply.response_data)
            assert isinstance(response, CreateTopicsResponse)
            (result,) = response.topics
            assert (result.name, result.error_code) == (long.name, ErrorCode.INVALID_TOPIC_EXCEPTION)
            assert result.error_message is not None and len(result.error_message) == TEXT_SIZE_MAX

    serve_and(story)
