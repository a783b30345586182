"""Which requests are timed, and which errors are found in replies."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.metrics.request_meter import RequestMeter, errors_walk
from broker.network.listener_role import ListenerRole
from broker.network.route import Binding, Handler, Route
from broker.requests.table import APIS, routes
from broker.runtime.pending import Pending
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatResponse


class Measured:
    """A route whose handler takes as long as told."""

    def __init__(self, key: int, name: str) -> None:
        self.now_ns = 0
        self.response: object = HeartbeatResponse()
        self.route = Route(key, name, 0, 4, lambda: Binding(object, object, self.handle))
        self.meter = RequestMeter(lambda: self.now_ns)
        self.timed = self.meter.timed(self.route, cast("Handler", self.handle))

    def handle(self, context: object, request: object) -> object:
        self.now_ns += 2_000_000
        return self.response

    def ask(self, count: int = 1) -> object:
        """As the connection does it."""
        response: object = None
        for _ in range(count):
            self.route.requests += 1
            handle = self.handle if self.route.requests < self.route.sample_at else self.timed
            response = handle(None, None)  # type: ignore[arg-type]
        return response


@pytest.mark.parametrize(("key", "name", "samples"), [(0, "Produce", 2), (1, "Fetch", 5), (12, "Heartbeat", 65)])
def test_the_first_is_timed_and_of_frequent_apis_few_others(key: int, name: str, samples: int) -> None:
    measured = Measured(key, name)
    measured.ask(65)
    assert measured.meter.total_ms.count == measured.meter.local_ms.count == measured.meter.remote_ms.count == samples
    assert measured.meter.total_ms.sum == pytest.approx(2 * samples)


NO_SERVICES = cast("Any", None)


def test_a_parked_request_is_timed_until_it_is_answered() -> None:
    measured = Measured(12, "Heartbeat")
    inner: Pending[object] = Pending()
    measured.response = inner
    outer = cast("Pending[object]", measured.ask())
    answers: list[object] = []
    outer.listen(answers.append)
    assert measured.meter.total_ms.count == 0
    measured.now_ns += 40_000_000
    inner.complete("done")
    assert answers == ["done"]
    assert (measured.meter.local_ms.sum, measured.meter.remote_ms.sum, measured.meter.total_ms.sum) == (2, 40, 42)


def test_a_parked_request_whose_client_goes_away_is_given_up() -> None:
    measured = Measured(12, "Heartbeat")
    given_up: list[bool] = []
    measured.response = Pending(lambda: given_up.append(True))
    cast("Pending[object]", measured.ask()).abandon()
    assert given_up == [True]


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
    measured = Measured(12, "Heartbeat")
    encoded: list[object] = []
    encode = measured.meter.counted(measured.route, HeartbeatResponse, lambda response, out: encoded.append(response))
    for code in (0, 27, 27, 25):
        encode(HeartbeatResponse(error_code=code), [])
    assert (len(encoded), measured.route.errors) == (4, {27: 2, 25: 1})
