"""Frames of requests and replies, with the bytes that Kafka's protocol guide gives."""

from __future__ import annotations

import pytest

from moldau.protocol.frames import correlation_id_of, request_frame, request_head, response_of, size_prefixed
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.primitives import MalformedMessage

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_a_request_has_its_header() -> None:
    body = b"\0\x01g\0\0\0\x01\0\x01m"
    assert request_frame(HEARTBEAT, 0, 7, b"me") == b"\0\x0c\0\0\0\0\0\x07\0\x02me" + body
    assert request_frame(HEARTBEAT, 0, 7) == b"\0\x0c\0\0\0\0\0\x07\xff\xff" + body, "no client id is not an empty one"
    assert request_head(12, 0, 7, b"") == b"\0\x0c\0\0\0\0\0\x07\0\0"
    assert size_prefixed(b"abc") == b"\0\0\0\x03abc"


def test_the_header_of_a_flexible_version_ends_with_tags() -> None:
    flexible = request_frame(HEARTBEAT, 4, 7, b"me")
    assert flexible.startswith(request_head(12, 4, 7, b"me") + b"\0\x02g")


def test_a_reply_has_tags_in_flexible_versions_save_that_of_api_versions() -> None:
    reply = b"\0\0\0\x07" + b"\0\0\0\x05" + b"\0\x1b"
    assert correlation_id_of(reply) == 7
    assert response_of(HeartbeatRequest, 3, reply) == HeartbeatResponse(throttle_time_ms=5, error_code=27)
    tagged = b"\0\0\0\x07" + b"\x01\x07\x01x" + b"\0\0\0\x05" + b"\0\x1b" + b"\0"
    assert response_of(HeartbeatRequest, 4, tagged) == HeartbeatResponse(throttle_time_ms=5, error_code=27)
    versions = b"\0\0\0\x01" + b"\0\x23" + b"\x01" + b"\0\0\0\0" + b"\0"
    assert response_of(ApiVersionsRequest, 3, versions) == ApiVersionsResponse(error_code=35)


def test_bytes_that_are_left_over_are_malformed() -> None:
    with pytest.raises(MalformedMessage, match="1 bytes left over"):
        response_of(HeartbeatRequest, 0, b"\0\0\0\x07\0\x1b\0")


@pytest.mark.parametrize("size", range(9))
def test_a_reply_that_is_cut_short_is_malformed(size: int) -> None:
    reply = (b"\0\0\0\x07" + b"\x01\x07\x01x" + b"\0\0\0\x05" + b"\0\x1b" + b"\0")[:size]
    with pytest.raises(MalformedMessage):
        correlation_id_of(reply)
        response_of(HeartbeatRequest, 4, reply)
