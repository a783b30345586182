"""The controllers tell a node that it belongs to another cluster; one wrong controller among them decides nothing."""

from __future__ import annotations

from moldau.broker.metadata.raft.quorum_peers import Address, ClusterCheck
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchResponse

REFUSED = FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
TAKEN = FetchResponse(error_code=ErrorCode.NONE)
A: Address = ("a", 9093)
B: Address = ("b", 9093)
C: Address = ("c", 9093)


def test_the_only_controller_decides() -> None:
    refusal = ClusterCheck("mine", ["a:9093"]).count_response(A, REFUSED)
    assert refusal is not None and "cluster mine" in str(refusal) and "a:9093" in str(refusal)


def test_more_than_half_of_the_controllers_decide_once() -> None:
    check = ClusterCheck("mine", ["a:9093", "b:9093", "c:9093"])
    assert check.count_response(A, REFUSED) is None
    assert check.count_response(A, REFUSED) is None
    assert check.count_response(B, REFUSED) is not None
    assert check.count_response(C, REFUSED) is None


def test_one_wrong_controller_beside_a_right_one_changes_nothing() -> None:
    check = ClusterCheck("mine", ["a:9093", "b:9093"])
    assert check.count_response(A, REFUSED) is None
    assert check.count_response(B, TAKEN) is None
    assert check.count_response(B, REFUSED) is None


def test_a_node_that_is_told_of_no_controller_is_never_refused() -> None:
    assert ClusterCheck("mine", []).count_response(A, REFUSED) is None
