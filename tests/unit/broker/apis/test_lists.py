"""Lists that are handled whole: how their elements are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.apis.lists import bounded_handler
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology

BOUNDS = {"topology.subtopologies": 3, "topology.subtopologies.source_topics": 5}


def heartbeat(*topics: int) -> StreamsGroupHeartbeatRequest:
    """With a subtopology for each number, of so many topics."""
    subtopologies = [
        Subtopology(subtopology_id=f"{place}", source_topics=["t"] * count) for place, count in enumerate(topics)
    ]
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        endpoint_information_epoch=0,
        topology=Topology(epoch=0, subtopologies=subtopologies),
        shutdown_application=False,
    )


def answered(request: StreamsGroupHeartbeatRequest, *, is_cut: bool = False) -> object:
    """The answer of the handler, or the error of the refusal."""
    handle = bounded_handler(BOUNDS, lambda context, request: "answered", is_cut=is_cut)
    answer = handle(cast("Any", SimpleNamespace(version=0)), request)
    return getattr(answer, "error_code", answer)


def test_lists_inside_the_elements_of_another_count_together() -> None:
    assert answered(heartbeat(2, 3)) == "answered"
    assert answered(heartbeat(2, 2, 2)) == ErrorCode.INVALID_REQUEST
    assert answered(heartbeat(1, 1, 1, 1)) == ErrorCode.INVALID_REQUEST


def test_where_the_outer_list_is_cut_each_counts_by_itself() -> None:
    class Request:
        def __init__(self) -> None:
            self.outer = [Subtopology(subtopology_id="a", source_topics=["t"] * 4) for _ in range(3)]

    handle = bounded_handler({"outer.source_topics": 4}, lambda context, request: "answered", is_cut=True)
    assert handle(cast("Any", None), Request()) == "answered"
