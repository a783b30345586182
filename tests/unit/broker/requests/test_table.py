"""The table of APIs against the declarations, the handlers and what clients must see; and what a new API takes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from moldau.broker.network.route import ListenerRole, RequestContext
from moldau.broker.requests.api import Api, api, open_to_all, route
from moldau.broker.requests.handlers import heartbeat
from moldau.broker.requests.table import APIS, ROWS, routes, table_of
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.kraft.controller.apis import api as controller_api
from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.schema import Int32, message, response_class_of, spec_of
from tests.support.node import Node, serve_and

NO_SERVICES = cast("Any", None)
"""Routes that are looked at, and not asked."""
PRODUCE = 0
API_VERSIONS = 18


@message(key=9000, versions="0-1", flexible="1+")
class AddOneRequest:
    """The declaration of a new API."""

    number: Int32


@message(key=9000, versions="0-1", flexible="1+")
class AddOneResponse:
    number: Int32


def add_one(services: object, context: RequestContext, request: AddOneRequest) -> AddOneResponse:
    """Its handler."""
    return AddOneResponse(number=request.number + 1)


def add_nothing(context: DecisionContext, request: AddOneRequest) -> Decision:
    """The same for an API of the controller."""
    return Decision((), AddOneResponse(number=request.number))


def test_a_new_api_is_a_declaration_a_handler_and_a_row() -> None:
    async def story(node: Node) -> None:
        await node.connect()
        (listener,) = (each for each in node.broker.listeners if each.role is ListenerRole.BROKER)
        added = routes(ListenerRole.BROKER, NO_SERVICES, [api(AddOneRequest, broker=lambda: add_one, rule=open_to_all)])
        listener.routes = {**listener.routes, **added}
        client = await node.connect()
        for version in (0, 1):
            assert await client.ask(AddOneRequest(number=41), version) == AddOneResponse(number=42)

    serve_and(story)


def test_a_new_api_of_the_controller_is_one_row_there_and_none_here() -> None:
    row = controller_api(AddOneRequest, add_nothing, is_for_clients=True)
    known = {row.request for row in APIS}
    (added,) = (each for each in table_of(ROWS, [*CONTROLLER_APIS.values(), row]) if each.request not in known)
    assert (added.key, added.name, added.first, added.last) == (9000, "AddOne", 0, 1)
    assert added.role is ListenerRole.BOTH and added.is_forwardable


def test_a_handler_of_another_request_is_a_type_error() -> None:
    """mypy checks this test: it would complain of a comment that is not needed."""
    row = api(SyncGroupRequest, broker=lambda: heartbeat.handle, rule=open_to_all)  # type: ignore[arg-type, return-value]
    assert row.request is SyncGroupRequest


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_request_and_response_are_declared_for_the_same_versions(row: Api) -> None:
    request, response = spec_of(row.request), spec_of(response_class_of(row.request))
    assert request.key == response.key == row.key
    assert request.versions == response.versions


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_headers_are_flexible_in_the_versions_in_which_bodies_are(row: Api) -> None:
    made = route(row, ListenerRole.BROKER if row.role & ListenerRole.BROKER else ListenerRole.CONTROLLER, NO_SERVICES)
    for version in range(row.first, row.last + 1):
        made.load(version)
        assert (version >= made.flexible_from) == (version in spec_of(row.request).flexible)


def test_keys_are_unique() -> None:
    assert len({row.key for row in APIS}) == len(APIS)


def test_what_is_not_served_is_not_loaded() -> None:
    produce = route(next(row for row in APIS if row.key == PRODUCE), ListenerRole.BROKER, NO_SERVICES)
    assert produce.load(2) is None
    assert produce.load(14) is None
    assert produce.load(3) is not None


def test_both_kinds_of_listener_tell_their_versions() -> None:
    assert API_VERSIONS in routes(ListenerRole.BROKER, NO_SERVICES)
    assert API_VERSIONS in routes(ListenerRole.CONTROLLER, NO_SERVICES)
    assert PRODUCE not in routes(ListenerRole.CONTROLLER, NO_SERVICES)


def test_what_may_come_in_an_envelope_is_what_apache_kafka_forwards() -> None:
    """Of its forwardable APIs those that are served here."""
    forwardable = {
        "AddRaftVoter", "AllocateProducerIds", "AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments",
        "AlterUserScramCredentials", "CreateAcls", "CreateDelegationToken", "CreatePartitions", "CreateTopics",
        "DeleteAcls", "DeleteTopics", "DescribeQuorum", "ElectLeaders", "ExpireDelegationToken",
        "IncrementalAlterConfigs", "ListPartitionReassignments", "RemoveRaftVoter", "RenewDelegationToken",
        "UnregisterBroker", "UpdateFeatures",
    }  # fmt: skip
    assert {row.name for row in APIS if row.is_forwardable} == forwardable
