"""The table of the controller's APIs, and what a new one takes: a declaration, a handler, a row."""

from __future__ import annotations

import pytest

from moldau.kraft.controller.apis import CONTROLLER_APIS, api, apis_by_request_class
from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.producer_id_control import allocate_producer_ids
from moldau.kraft.image.replay import Replay
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.records.metadata import NoOpRecord
from moldau.protocol.schema import Int32, message, spec_of
from tests.support.controller_scribe import SETTINGS


@message(key=9001, versions="0", flexible="0+")
class WriteNothingRequest:
    """Asks for records that say nothing: the declaration."""

    count: Int32


@message(key=9001, versions="0", flexible="0+")
class WriteNothingResponse:
    written: Int32


def write_nothing(context: DecisionContext, request: WriteNothingRequest) -> Decision:
    """The handler."""
    return Decision([NoOpRecord()] * request.count, WriteNothingResponse(written=request.count))


def test_a_new_api_is_a_declaration_a_handler_and_a_row() -> None:
    apis = apis_by_request_class([*CONTROLLER_APIS.values(), api(WriteNothingRequest, write_nothing)])
    controller = Controller(Replay(), SETTINGS, 0, apis=apis)
    decision = controller.step(WriteNothingRequest(count=2), 0)
    assert len(decision.records) == 2 and decision.reply == WriteNothingResponse(written=2)
    with pytest.raises(AssertionError, match="no API WriteNothingRequest"):
        Controller(Replay(), SETTINGS, 0).step(WriteNothingRequest(count=2), 0)


def test_a_handler_of_another_request_is_a_type_error() -> None:
    """mypy checks this test: it would complain of a comment that is not needed."""
    row = api(CreateTopicsRequest, allocate_producer_ids)  # type: ignore[arg-type]
    assert row.request is CreateTopicsRequest


def test_a_request_has_one_handler() -> None:
    with pytest.raises(AssertionError, match="two handlers"):
        apis_by_request_class([api(WriteNothingRequest, write_nothing), api(WriteNothingRequest, write_nothing)])


def test_every_row_is_an_api_of_its_own() -> None:
    keys = [spec_of(request).key for request in CONTROLLER_APIS]
    assert len(set(keys)) == len(keys) and None not in keys
