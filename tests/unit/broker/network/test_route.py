"""Routes: what is bound and compiled on first use, which versions are served, what is counted."""

from __future__ import annotations

from typing import cast

from moldau.broker.network.route import RequestContext, Route, RouteBinding
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

NO_CONTEXT = cast("RequestContext", None)


class Bound:
    """A route of Heartbeat, and how often it was bound."""

    def __init__(self, *, answers_unknown_versions: bool = False) -> None:
        self.count = 0
        self._answers = answers_unknown_versions
        self.route = Route(12, "Heartbeat", 0, 3, self.bind)

    def bind(self) -> RouteBinding:
        self.count += 1
        refuse = (lambda route: HeartbeatResponse(error_code=35)) if self._answers else None
        return RouteBinding(HeartbeatRequest, HeartbeatResponse, lambda context, request: "answered", None, refuse)


def test_a_route_is_bound_once_with_its_first_version() -> None:
    bound = Bound()
    assert bound.count == 0
    for version in (0, 3, 0):
        assert bound.route.load(version) is bound.route.decoders[version]
    assert bound.count == 1 and sorted(bound.route.encoders) == [0, 3]
    assert bound.route.handle(NO_CONTEXT, None) == "answered"


def test_headers_are_flexible_as_the_declaration_says() -> None:
    bound = Bound()
    bound.route.load(0)
    assert bound.route.flexible_from == bound.route.reply_flexible_from == 4


def test_a_version_that_is_not_served_binds_nothing() -> None:
    bound = Bound()
    assert bound.route.load(-1) is None and bound.route.load(4) is None and bound.count == 0


def test_a_version_that_is_not_served_is_answered_where_the_api_has_an_answer() -> None:
    assert Bound().route.unserved_version() is None
    route = Bound(answers_unknown_versions=True).route
    assert route.unserved_version() == HeartbeatResponse(error_code=35)
    assert sorted(route.encoders) == [0]


def test_errors_are_counted_by_their_code() -> None:
    route = Bound().route
    route.count_errors([3, 6, 3])
    route.count_errors([6])
    assert route.errors == {3: 2, 6: 2}
