"""The table of APIs against the declarations, the handlers and what clients must see; and what a new API takes."""

from __future__ import annotations

from collections.abc import Iterator
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
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.primitives import Chunk
from moldau.protocol.schema import Int32, fields_of, message, response_class_of, spec_of
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
        "UnregisterBroker", "UnregisterController", "UpdateFeatures",
    }  # fmt: skip
    assert {row.name for row in APIS if row.is_forwardable} == forwardable


def with_error(cls: type[object], error: ErrorCode) -> Any:
    """A response with one element in each list, and the error in each of its error codes."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if field.struct is not None:
            inner = with_error(field.struct, error)
            values[field.name] = [inner] if field.is_array else inner
        elif not field.is_array:
            values[field.name] = error if field.name.endswith("error_code") else field.default
    return cls(**values)


def errors_in(value: object) -> Iterator[int]:
    for field in fields_of(type(value)):
        found = getattr(value, field.name)
        if field.struct is not None:
            for each in found or () if field.is_array else (found,) if found is not None else ():
                yield from errors_in(each)
        elif field.name.endswith("error_code"):
            yield found


def sent(row: Api, version: int, error: ErrorCode) -> set[int]:
    """The errors of a response with this error in every place, as a client of this version gets them."""
    made = route(row, ListenerRole.BROKER if row.role & ListenerRole.BROKER else ListenerRole.CONTROLLER, NO_SERVICES)
    made.load(version)
    chunks: list[Chunk] = []
    cls = response_class_of(row.request)
    made.encoders[version](with_error(cls, error), chunks)
    return set(errors_in(decode(cls, b"".join(bytes(cast("Any", each)) for each in chunks), version))) - {0}


@pytest.mark.parametrize("row", [row for row in APIS if row.errors_before], ids=lambda row: row.name)
def test_a_client_gets_the_errors_of_its_version(row: Api) -> None:
    for version in range(row.first, row.last + 1):
        older = {
            new: old for first, errors in row.errors_before.items() if version < first for new, old in errors.items()
        }
        for error in {*(new for errors in row.errors_before.values() for new in errors), ErrorCode.INVALID_REQUEST}:
            assert sent(row, version, error) == {older.get(error, error)}, f"version {version}, {error.name}"


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_an_error_begins_within_the_versions_of_its_api(row: Api) -> None:
    assert all(row.first < first <= row.last for first in row.errors_before)
    known = [(first, new) for first, errors in row.errors_before.items() for new in errors]
    assert len({new for _, new in known}) == len(known), "each error begins once"


def test_the_errors_that_begin_with_a_version_are_those_of_apache_kafka() -> None:
    begins = {
        row.name: {error.name: first for first, errors in row.errors_before.items() for error in errors}
        for row in APIS
        if row.errors_before
    }
    assert begins == {
        "Produce": {"TRANSACTION_ABORTABLE": 11, "CONCURRENT_TRANSACTIONS": 12},
        "ListOffsets": {"OFFSET_NOT_AVAILABLE": 5},
        "InitProducerId": {"PRODUCER_FENCED": 4},
        "AddPartitionsToTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 5},
        "AddOffsetsToTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 4},
        "EndTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 4},
        "TxnOffsetCommit": {"TRANSACTION_ABORTABLE": 5, "CONCURRENT_TRANSACTIONS": 5},
    }
