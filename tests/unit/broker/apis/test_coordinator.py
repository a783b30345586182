"""A handler of a coordinator's API is at most 15 lines over the generic one, which submits its event."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.runtime.pending import MEMBERS, Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from tests.unit.tidy.sources import ROOT, tree_of

APIS: Final = Path("broker/apis")
LINES_MAX: Final = 15
SUBMITS: Final = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "delete_groups",
    "end_txn",
    "heartbeat",
    "init_producer_id",
    "join_group",
    "leave_group",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "sync_group",
    "txn_offset_commit",
)
"""The APIs whose request becomes an event of a machine."""
READS: Final = (
    "describe_groups",
    "describe_transactions",
    "find_coordinator",
    "list_groups",
    "list_transactions",
    "write_txn_markers",
)
"""The other APIs of coordinators: what they read or write needs no step of a machine here."""


def module_of(name: str) -> Path:
    (path,) = (each.relative_to(ROOT) for each in (ROOT / APIS).glob(f"*/{name}.py"))
    return path


def lines_of_handle(tree: ast.Module) -> int:
    """The lines of the function `handle`, with its signature."""
    (handle,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "handle")
    assert handle.end_lineno is not None
    return handle.end_lineno - handle.lineno + 1


def submits_by_itself(tree: ast.Module) -> bool:
    """Whether the module passes an event to a runner without the generic handler."""
    return any(isinstance(node, ast.Attribute) and node.attr == "submit" for node in ast.walk(tree))


@pytest.mark.parametrize("name", [*SUBMITS, *READS])
def test_a_handler_is_short(name: str) -> None:
    assert lines_of_handle(tree_of(module_of(name))) <= LINES_MAX


@pytest.mark.parametrize("name", SUBMITS)
def test_a_handler_submits_through_the_generic_one(name: str) -> None:
    tree = tree_of(module_of(name))
    assert not submits_by_itself(tree)
    generic = ("submit_event", "describe_groups")
    assert any(isinstance(node, ast.Name) and node.id in generic for node in ast.walk(tree))


def test_a_planted_longer_handler_is_found() -> None:
    planted = "def handle(services, context, request):\n" + "    services.step()\n" * LINES_MAX
    assert lines_of_handle(ast.parse(planted)) > LINES_MAX
    assert submits_by_itself(ast.parse("def handle(runner):\n    runner.submit(1)\n"))


class Runner:
    def __init__(self) -> None:
        self.events: list[Waiter] = []

    def submit(self, event: Waiter) -> None:
        self.events.append(event)


def complete(event: Waiter, response: object) -> None:
    assert hasattr(event.token, "complete")
    event.token.complete(response)


def test_a_request_is_refused_when_its_machine_is_not_here() -> None:
    def event_of(waiter: Waiter) -> Waiter:
        raise AssertionError("no event")

    assert submit_event(ErrorCode.NOT_COORDINATOR, 3, event_of, lambda error: error.name) == "NOT_COORDINATOR"


def test_the_answer_of_the_machine_is_the_response() -> None:
    runner = Runner()
    reply = submit_event(runner, 3, lambda waiter: waiter, lambda error: error.name, waits_for=MEMBERS)
    assert isinstance(reply, Pending)
    (event,) = runner.events
    assert (event.version, reply.waits_for, reply.is_complete) == (3, MEMBERS, False)
    complete(event, "answer")
    assert reply.is_complete


def test_a_response_is_made_of_the_answer() -> None:
    runner, responses = Runner(), list[str]()
    reply = submit_event(
        runner, 0, lambda waiter: waiter, lambda error: error.name, lambda answer: f"response of {answer}"
    )
    assert isinstance(reply, Pending)
    reply.listen(responses.append)
    complete(runner.events[0], 7)
    assert responses == ["response of 7"]


def test_answers_are_joined_in_the_order_of_the_parts() -> None:
    first, responses = Pending[str](), list[str]()
    answers: list[str | Pending[str]] = [first, "second"]
    join_answers(answers, lambda answers: "+".join(answers)).listen(responses.append)
    assert not responses
    first.complete("first")
    join_answers([], lambda answers: f"{len(answers)} parts").listen(responses.append)
    assert responses == ["first+second", "0 parts"]
