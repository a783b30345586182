"""A request as the part that a fault's scope names, and the other one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.faults.fault import Scope
from moldau.broker.faults.parts import request_part
from moldau.broker.faults.requests import refused_named
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import call_with_response
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

G, X = Scope(group="g"), Scope(transactional_id="x")
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def divided(request: object, scope: Scope) -> list[Any]:
    return [request_part(request, scope, lambda topic_id: "t", is_named=is_named) for is_named in (True, False)]


@pytest.mark.parametrize(
    ("scope", "request_", "field", "named", "others"),
    [
        (G, DescribeGroupsRequest(groups=["g", "h"]), "groups", ["g"], ["h"]),
        (G, DescribeGroupsRequest(groups=["g"]), "groups", ["g"], None),
        (G, DeleteGroupsRequest(groups_names=["h"]), "groups_names", None, ["h"]),
        (X, FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"]), "coordinator_keys", ["x"], ["y"]),
        (G, FindCoordinatorRequest(key_type=1, coordinator_keys=["g"]), "coordinator_keys", None, ["g"]),
        (G, BEAT, "group_id", "g", None),
        (X, BEAT, "group_id", None, "g"),
    ],
)
def test_names_are_divided(scope: Scope, request_: object, field: str, named: object, others: object) -> None:
    assert [part and getattr(part, field) for part in divided(request_, scope)] == [named, others]


def test_topics_are_divided_by_name_or_id_and_partition() -> None:
    offsets = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 1)]
    by_name = [OffsetCommitRequestTopic(name=name, partitions=list(offsets)) for name in ("t", "u")]
    by_id = [OffsetCommitRequestTopic(topic_id=bytes([1] * 16), partitions=list(offsets))]

    def told(topics: list[OffsetCommitRequestTopic], scope: Scope) -> list[object]:
        request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
        parts = divided(request, scope)
        assert request.topics == topics, "the request is as it was"
        return [
            part and [(each.name, [one.partition_index for one in each.partitions]) for each in part.topics]
            for part in parts
        ]

    assert told(by_name, Scope(topic="t")) == [[("t", [0, 1])], [("u", [0, 1])]]
    assert told(by_name, Scope(topic="t", partition=1)) == [[("t", [1])], [("t", [0]), ("u", [0, 1])]]
    assert told(by_name, Scope(topic="v")) == [None, [("t", [0, 1]), ("u", [0, 1])]]
    assert told(by_id, Scope(topic="t", partition=0)) == [[("", [0])], [("", [1])]]
    assert told(by_name, G) == [[("t", [0, 1]), ("u", [0, 1])], None]


def test_elements_with_topics_inside_are_divided() -> None:
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=id_,
            producer_id=1,
            producer_epoch=0,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names],
        )
        for id_, names in (("x", ("t", "u")), ("y", ("u",)))
    ]
    request = AddPartitionsToTxnRequest(transactions=transactions)

    def told(scope: Scope) -> list[object]:
        return [
            [(each.transactional_id, [topic.name for topic in each.topics]) for each in part.transactions]
            for part in divided(request, scope)
        ]

    assert told(X) == [[("x", ["t", "u"])], [("y", ["u"])]]
    assert told(Scope(topic="t")) == [[("x", ["t"])], [("x", ["u"]), ("y", ["u"])]]


def test_only_the_rest_of_a_request_has_its_effect() -> None:
    handled: list[list[str]] = []

    def handle(context: RequestContext, request: object) -> object:
        assert isinstance(request, DeleteGroupsRequest)
        handled.append(request.groups_names)
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name) for name in request.groups_names])

    answers: list[Any] = []
    context = cast("RequestContext", SimpleNamespace(version=2))
    request = DeleteGroupsRequest(groups_names=["g", "h"])
    answer = refused_named(G, ErrorCode.NOT_COORDINATOR, handle, context, request, lambda topic_id: None)
    call_with_response(answer, answers.append)
    assert handled == [["h"]]
    (response,) = answers
    assert [(each.group_id, each.error_code) for each in response.results] == [
        ("h", ErrorCode.NONE),
        ("g", ErrorCode.NOT_COORDINATOR),
    ]
