"""Which open transactions hang: those that their coordinator will not end in a partition."""

from __future__ import annotations

import pytest

from moldau.broker.console.transaction_pages import OpenTransaction, is_ending
from moldau.protocol.messages.describe_transactions import TopicData, TransactionState
from moldau.protocol.record_builder import Record, build_batch
from tests.support.console_client import SETTINGS, json_of
from tests.support.node import Node, produce_request, serve_and
from tests.support.transactional_producer import SETTINGS as TRANSACTIONS
from tests.support.transactional_producer import started

OPENED = OpenTransaction("t", 1, 7, 3, 0, 42, 1_000)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "state", "topic", "partitions", "expected"),
    [
        (7, 3, "Ongoing", "t", [0, 1], True),
        (7, 4, "PrepareAbort", "t", [1], True),
        (7, 3, "PrepareCommit", "t", [1], True),
        (7, 2, "Ongoing", "t", [1], False),
        (8, 3, "Ongoing", "t", [1], False),
        (7, 3, "CompleteCommit", "t", [1], False),
        (7, 3, "Empty", "t", [], False),
        (7, 3, "Ongoing", "t", [0], False),
        (7, 3, "Ongoing", "u", [1], False),
    ],
)
def test_a_transaction_ends_where_its_coordinator_has_the_partition_and_no_older_epoch(
    producer_id: int, epoch: int, state: str, topic: str, partitions: list[int], expected: bool
) -> None:
    known = TransactionState(
        transactional_id="payments",
        transaction_state=state,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TopicData(topic=topic, partitions=partitions)],
    )
    assert is_ending(known, OPENED) is expected


def test_a_partition_of_which_the_coordinator_does_not_know_hangs_though_the_producer_has_a_transaction() -> None:
    async def story(node: Node) -> None:
        producer = await started(node)
        await producer.send("t", b"known")
        orphan = build_batch(
            [Record(value=b"lost", timestamp=node.broker.environment.wall_ms())],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request("t", orphan, partition=1)
        request.transactional_id = "orphan"
        reply = await producer.client.ask(request, 9)
        assert reply.responses[0].partition_responses[0].error_code == 0
        hanging = (await json_of("/transactions"))["hanging"]
        assert [(each["topic"], each["partition"], each["producer_id"]) for each in hanging] == [("t", 1, producer.id)]

    serve_and(story, **SETTINGS, **TRANSACTIONS, transaction_partition_verification_enable="false")
