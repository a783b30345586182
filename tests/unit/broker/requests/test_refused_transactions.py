"""A refused transactional producer is logged once for each transactional id."""

from __future__ import annotations

import logging

import pytest

from broker.requests.refused_transactions import REMEMBERED_MAX, RefusedTransactions
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.node import Node, serve_and


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "transactional.id" in each.getMessage()]


def test_each_transactional_id_is_logged_at_its_first_refusal(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for name in ("a", "b", "a"):
            found = await client.ask(FindCoordinatorRequest(coordinator_keys=[name], key_type=1), 6)
            assert found.coordinators[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            begun = await client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 5)
            assert begun.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    serve_and(story)
    assert [each.partition(" from ")[0] for each in lines(caplog)] == [
        "the producer with transactional.id 'a'",
        "the producer with transactional.id 'b'",
    ]


def test_what_is_remembered_is_bounded_and_a_long_id_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    refused = RefusedTransactions()
    for number in range(REMEMBERED_MAX + 1):
        refused.refused(f"id-{number}", "10.0.0.1")
    assert len(refused._logged) == 1
    caplog.clear()
    refused.refused("x" * 5_000, "10.0.0.1")
    (line,) = lines(caplog)
    assert len(line) < 500
