"""A client's request reaches the controller in an envelope, and its answer comes back out of one."""

from __future__ import annotations

import pytest

from moldau.broker.metadata.enveloping import ForwardedClient, enclosed_response, enveloped_request, read_principal
from moldau.protocol.compiler import encode
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.envelope import EnvelopeResponse
from moldau.protocol.primitives import MalformedMessage
from moldau.security.principal import Principal

ALICE = Principal("User", "alice", True)


def test_an_envelope_names_the_client() -> None:
    request = CreateTopicsRequest(topics=[], timeout_ms=5)
    for host, packed in (("192.0.2.1", b"\xc0\0\2\1"), ("fe80::1%eth0", b"\xfe\x80" + bytes(13) + b"\1")):
        envelope = enveloped_request(request, 7, ForwardedClient(ALICE, host, "me"))
        assert envelope.request_data == b"\0\x13\0\x07\0\0\0\0\0\x02me\0" + encode(request, 7)
        assert read_principal(envelope.request_principal) == ALICE
        assert envelope.client_host_address == packed
    old = enveloped_request(request, 2, ForwardedClient(ALICE, "192.0.2.1", None))
    assert old.request_data == b"\0\x13\0\x02\0\0\0\0\xff\xff" + encode(request, 2)


@pytest.mark.parametrize(("version", "header"), [(7, b"\0\0\0\0\0"), (2, b"\0\0\0\0")])
def test_the_response_inside(version: int, header: bytes) -> None:
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
    envelope = EnvelopeResponse(response_data=header + encode(response, version))
    opened = enclosed_response(envelope, CreateTopicsRequest, version)
    assert isinstance(opened, CreateTopicsResponse) and opened.topics[0].name == "t"
    with pytest.raises(MalformedMessage):
        enclosed_response(EnvelopeResponse(), CreateTopicsRequest, version)
