"""The catalogue of APIs against the declarations, the handlers and what clients must see; and what a new API takes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from moldau.broker.apis import records
from moldau.broker.apis.api import Api
from moldau.broker.apis.catalogue import BROKER, CATALOGUE, FORWARDED, LINES, api_lines, route, routes
from moldau.broker.apis.groups import heartbeat
from moldau.broker.network.route import ListenerRole, Route
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.kraft.controller.apis import api as controller_api
from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.protocol import messages
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.primitives import Chunk
from moldau.protocol.schema import Int32, fields_of, message, response_class_of, spec_of
from tests.support.apis import APIS
from tests.support.node import Node, serve_and

NO_SERVICES = cast("Any", None)
"""Routes that are looked at, and not asked."""
PRODUCE = 0
API_VERSIONS = 18


MESSAGE: Final = """
from __future__ import annotations

from moldau.protocol.schema import Int32, message


@message(key=9000, versions="0-1", flexible="1+")
class AddOneRequest:
    number: Int32


@message(key=9000, versions="0-1", flexible="1+")
class AddOneResponse:
    number: Int32
"""
MODULE: Final = '''
"""AddOne (API key 9000, versions 0-1): the number after a number."""

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import open_to_all
from moldau.protocol.messages.add_one import AddOneRequest, AddOneResponse


def handle(services, context, request):
    return AddOneResponse(number=request.number + 1)


API = Api(AddOneRequest, broker=handle, needs=open_to_all)
'''


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary tree beside that of the product, in which a test adds modules."""
    for package in (messages, records):
        folder = tmp_path / package.__name__
        folder.mkdir()
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    return tmp_path


def answers(tree: Path, name: str, message_text: str, module_text: str, **request: int) -> dict[int, object]:
    """The answers of a node with an API of this name, made of these texts, in each version of the API."""
    module = "".join(f"_{each.lower()}" if each.isupper() else each for each in name).removeprefix("_")
    (tree / messages.__name__ / f"{module}.py").write_text(message_text)
    (tree / records.__name__ / f"{module}.py").write_text(module_text)
    lines = api_lines({name: (f"records.{module}", BROKER)}, ())
    found: dict[int, object] = {}

    async def story(node: Node) -> None:
        await node.connect()
        (listener,) = (each for each in node.broker.listeners if each.role is ListenerRole.BROKER)
        listener.routes = {**listener.routes, **routes(ListenerRole.BROKER, NO_SERVICES, lines.values())}
        client = await node.connect()
        (made,) = (line.request for line in lines.values())
        for version in range(spec_of(made).versions.last + 1):
            answer = await client.ask(made(**request), version)
            found[version] = cast("Any", answer).number

    serve_and(story)
    return found


def test_a_new_api_is_one_message_one_module_and_one_line(tree: Path) -> None:
    """As CONTRIBUTING says."""
    assert answers(tree, "AddOne", MESSAGE, MODULE, number=41) == {0: 42, 1: 42}


def test_a_new_version_changes_the_message_and_the_module(tree: Path) -> None:
    """As CONTRIBUTING says; an API of Kafka has its schema and its bytes among the facts, too."""
    message_text = MESSAGE.replace("AddOne", "AddSome").replace('"0-1"', '"0-2"').replace("9000", "9002")
    message_text = message_text.replace("import Int32, message", "import Int32, message, since")
    message_text = message_text.replace(
        "    number: Int32\n", "    number: Int32\n    some: Annotated[Int32, since(2)] = 1\n", 1
    )
    message_text = message_text.replace("annotations\n", "annotations\n\nfrom typing import Annotated\n", 1)
    module_text = MODULE.replace("AddOne", "AddSome").replace("add_one", "add_some").replace("+ 1", "+ request.some")
    assert answers(tree, "AddSome", message_text, module_text, number=41, some=7) == {0: 42, 1: 42, 2: 48}


@message(key=9001, versions="0-1", flexible="1+")
class AddNothingRequest:
    number: Int32


@message(key=9001, versions="0-1", flexible="1+")
class AddNothingResponse:
    number: Int32


def add_nothing(context: DecisionContext, request: AddNothingRequest) -> Decision:
    return Decision((), AddNothingResponse(number=request.number))


def test_a_new_api_of_the_controller_is_one_row_there_and_none_here() -> None:
    row = controller_api(AddNothingRequest, add_nothing, is_for_clients=True)
    lines = api_lines(CATALOGUE, [*CONTROLLER_APIS.values(), row])
    (added,) = (line for name, line in lines.items() if name not in LINES)
    assert (added.key, added.name, added.source) == (9001, "AddNothing", row)
    assert added.listeners == FORWARDED


def test_a_handler_of_another_request_is_a_type_error() -> None:
    """mypy checks this test: it would complain of a comment that is not needed."""
    api = Api(SyncGroupRequest, broker=heartbeat.handle)  # type: ignore[arg-type]
    assert api.request is SyncGroupRequest


def test_each_api_has_the_handlers_that_its_listeners_need() -> None:
    for api in APIS:
        assert (api.broker is not None) == bool(api.listeners.role & ListenerRole.BROKER), api.name
        assert (api.controller is not None) == bool(api.listeners.role & ListenerRole.CONTROLLER), api.name


def test_every_declaration_of_a_module_is_in_the_catalogue() -> None:
    named = {api.request for api in APIS}
    for module, _ in CATALOGUE.values():
        declared = importlib.import_module(f"moldau.broker.apis.{module}")
        assert {api.request for api in getattr(declared, "APIS", None) or (declared.API,)} <= named


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_request_and_response_are_declared_for_the_same_versions(row: Api[Any]) -> None:
    request, response = spec_of(row.request), spec_of(response_class_of(row.request))
    assert request.key == response.key == row.key
    assert request.versions == response.versions


def route_of(api: Api[Any]) -> Route:
    """The route of an API behind listeners of brokers, or of controllers if these alone serve it."""
    role = ListenerRole.BROKER if api.listeners.role & ListenerRole.BROKER else ListenerRole.CONTROLLER
    return route(LINES[api.name], role, NO_SERVICES)


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_headers_are_flexible_in_the_versions_in_which_bodies_are(row: Api[Any]) -> None:
    made = route_of(row)
    for version in range(row.first, row.last + 1):
        made.load(version)
        assert (version >= made.flexible_from) == (version in spec_of(row.request).flexible)


def test_keys_are_unique() -> None:
    assert len({row.key for row in APIS}) == len(APIS)


def test_what_is_not_served_is_not_loaded() -> None:
    produce = route(LINES["Produce"], ListenerRole.BROKER, NO_SERVICES)
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
    assert {row.name for row in APIS if row.listeners.is_forwardable} == forwardable


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


def sent(row: Api[Any], version: int, error: ErrorCode) -> set[int]:
    """The errors of a response with this error in every place, as a client of this version gets them."""
    made = route_of(row)
    made.load(version)
    chunks: list[Chunk] = []
    cls = response_class_of(row.request)
    made.encoders[version](with_error(cls, error), chunks)
    return set(errors_in(decode(cls, b"".join(bytes(cast("Any", each)) for each in chunks), version))) - {0}


@pytest.mark.parametrize("row", [row for row in APIS if row.errors_before], ids=lambda row: row.name)
def test_a_client_gets_the_errors_of_its_version(row: Api[Any]) -> None:
    for version in range(row.first, row.last + 1):
        older = {
            new: old for first, errors in row.errors_before.items() if version < first for new, old in errors.items()
        }
        for error in {*(new for errors in row.errors_before.values() for new in errors), ErrorCode.INVALID_REQUEST}:
            assert sent(row, version, error) == {older.get(error, error)}, f"version {version}, {error.name}"


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_an_error_begins_within_the_versions_of_its_api(row: Api[Any]) -> None:
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
        "AddPartitionsToTxn": {"PRODUCER_FENCED": 2},
        "AddOffsetsToTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 4},
        "EndTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 4},
        "TxnOffsetCommit": {"TRANSACTION_ABORTABLE": 5, "CONCURRENT_TRANSACTIONS": 5},
    }
