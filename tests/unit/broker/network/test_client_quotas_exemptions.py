"""What no quota counts: the cluster's own work, and not that of a client that only says that it is a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.forwarding import Forwarding
from moldau.broker.network.client_quotas import is_exempt
from moldau.broker.network.route import ListenerRole
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchRequest, ReplicaState
from moldau.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from moldau.security.access import Unrestricted
from moldau.security.principal import Principal, Requester

FETCH, WRITE_TXN_MARKERS = 1, 27


def fetch(replica_id: int, state: ReplicaState | None = None) -> FetchRequest:
    return FetchRequest(replica_id=replica_id, replica_state=state, max_wait_ms=0, min_bytes=0, topics=[])


class Restricted:
    """The access of a client for which an authorizer decides: everything, or nothing."""

    is_unrestricted = False

    def __init__(self, is_allowed: bool) -> None:
        self.is_allowed = is_allowed

    def allows(self, *_: object, **__: object) -> bool:
        return self.is_allowed


@pytest.mark.parametrize(
    ("access", "may"), [(Restricted(False), False), (Restricted(True), True), (Unrestricted(), True)]
)
def test_replication_and_markers_are_exempt_for_those_that_may(access: object, may: bool) -> None:
    def exempt(key: int, request: object) -> bool:
        return is_exempt(cast("Any", SimpleNamespace(access=access, route=SimpleNamespace(key=key))), request)

    assert exempt(FETCH, fetch(2)) is may
    assert exempt(FETCH, fetch(-1, ReplicaState(replica_id=2))) is may
    assert exempt(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[])) is may
    assert not exempt(FETCH, fetch(-1))
    assert not exempt(0, object())


@pytest.mark.parametrize(("heartbeat_broker_id", "is_counted"), [(-1, True), (3, False)])
def test_topics_that_a_broker_creates_by_itself_are_not_counted_at_another_node(
    heartbeat_broker_id: int, is_counted: bool
) -> None:
    seen: list[Requester] = []

    def decide(request: object, reply: object, given_up: object, requester: Requester) -> bool:
        seen.append(requester)
        return True

    context = SimpleNamespace(
        listener=SimpleNamespace(role=ListenerRole.CONTROLLER),
        connection=SimpleNamespace(heartbeat_broker_id=heartbeat_broker_id),
        access=SimpleNamespace(principal=Principal("User", "node")),
        client_host="192.0.2.1",
        client_id="node-3",
        version=7,
    )
    forwarding = Forwarding(cast("Any", SimpleNamespace(decide=decide)), *cast("Any", (None, None, None)))
    forwarding.ask(CreateTopicsRequest(), cast("Any", context))
    assert seen == [Requester(Principal("User", "node"), "node-3", True if is_counted else None)]
