"""Which errors are found in replies."""

from __future__ import annotations

from typing import Any, cast

import pytest

from moldau.broker.apis.catalogue import routes
from moldau.broker.metrics.traffic import counting_encoder, errors_walk
from moldau.broker.network.route import ListenerRole, Route
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from tests.support.apis import APIS

NO_SERVICES = cast("Any", None)


def test_errors_are_found_wherever_they_stand_in_a_reply() -> None:
    walk = errors_walk(FetchResponse)
    assert walk is not None
    partitions = [
        PartitionData(partition_index=i, error_code=code, high_watermark=0) for i, code in enumerate((0, 3, 6))
    ]
    response = FetchResponse(error_code=70, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    assert list(walk(response)) == [70, 3, 6]
    assert list(walk(FetchResponse(responses=[]))) == []


def test_every_response_that_has_an_error_code_can_be_walked_empty() -> None:
    walked = 0
    for route in (
        *routes(ListenerRole.BROKER, NO_SERVICES).values(),
        *routes(ListenerRole.CONTROLLER, NO_SERVICES).values(),
    ):
        walk = errors_walk(route._bound().response_class)
        if walk is not None and route.name not in ("Produce",):
            walked += 1
    assert walked > len(APIS) // 2


def test_counting_an_encoder_changes_nothing_else() -> None:
    route = Route(12, "Heartbeat", 0, 4, lambda: pytest.fail("nothing is decoded here"))
    encoded: list[object] = []
    encode = counting_encoder(route, HeartbeatResponse, lambda response, out: encoded.append(response))
    for code in (0, 27, 27, 25):
        encode(HeartbeatResponse(error_code=code), [])
    assert (len(encoded), route.errors) == (4, {27: 2, 25: 1})
