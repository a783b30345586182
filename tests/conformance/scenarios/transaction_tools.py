"""Scenarios of Apache Kafka's command line tools for transactions."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.conformance.scenarios.tools import FROM_BEGINNING, ToolScenario, columns, without
from tests.conformance.session import expect
from tests.conformance.toolbox import Toolbox

PATIENCE_S = 60
RECORDS = 5_000


def producing(box: Toolbox, topic: str, *, count: int, rate: int, duration_ms: int) -> tuple[str, ...]:
    """The words with which kafka-producer-perf-test commits a transaction after each `duration_ms`."""
    counts = ("--num-records", str(count), "--record-size", "100", "--throughput", str(rate))
    return (
        "--topic",
        topic,
        *counts,
        "--transactional-id",
        box.name("x"),
        "--transaction-duration-ms",
        str(duration_ms),
    )


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        expect(time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.5)


def committed(box: Toolbox) -> None:
    topic, id = box.create_topic(), box.name("x")
    output = box.run("kafka-producer-perf-test", *producing(box, topic, count=RECORDS, rate=10_000, duration_ms=100))
    expect(f"{RECORDS} records sent" in output, output[-300:])
    read = box.read_lines(topic, RECORDS, FROM_BEGINNING, "--isolation-level", "read_committed")
    expect(len(read) == RECORDS, f"{len(read)} of {RECORDS} records were read")
    until("the last transaction is complete", lambda: state(box, id) == "CompleteCommit")
    listed = columns(box.run("kafka-transactions", "list"), "TransactionalId", "TransactionState")
    box.observe("listed", [row for row in listed if row[0] == id])
    box.observe("described", described(box, id))


def state(box: Toolbox, id: str) -> str:
    return described(box, id)[0][1]


def described(box: Toolbox, id: str) -> list[list[str]]:
    output = box.run("kafka-transactions", "describe", "--transactional-id", id)
    return columns(output, "TransactionalId", "TransactionState", "TransactionTimeoutMs")


def aborted(box: Toolbox) -> None:
    """Of a producer that was killed, the tool aborts the transaction if it is open."""
    topic, id = box.create_topic(), box.name("x")
    place = ("--topic", topic, "--partition", "0")

    def first_offset() -> str:
        """Where the open transaction begins, as the tool prints it."""
        rows = columns(
            box.run("kafka-transactions", "describe-producers", *place), "ProducerId", "CurrentTransactionStartOffset"
        )
        return rows[0][1] if rows else "None"

    with box.begun("kafka-producer-perf-test", *producing(box, topic, count=1_000, rate=10, duration_ms=600_000)):
        until("a transaction is open", lambda: first_offset() != "None")
        box.observe("described", described(box, id))
    box.observe("first offset", first_offset())
    box.observe("hanging", without(box.run("kafka-transactions", "find-hanging", "--broker-id", "1")))
    box.run("kafka-transactions", "abort", *place, "--start-offset", first_offset())
    box.observe("first offset after the abort", first_offset())
    box.run("kafka-transactions", "forceTerminateTransaction", "--transactionalId", id)
    until("the transaction is ended, and a new producer could begin", lambda: state(box, id) == "Empty")
    box.observe("terminated", described(box, id))
    box.run("kafka-transactions", "abort", *place, "--start-offset", "0", status=1)
    box.send_lines(topic, "after")
    box.observe("read", box.read_lines(topic, 1, FROM_BEGINNING, "--isolation-level", "read_committed"))


TRANSACTION_TOOL_SCENARIOS = (
    ToolScenario(
        "kafka-transactions-list", "transactions of kafka-producer-perf-test, listed and described", committed
    ),
    ToolScenario("kafka-transactions-abort", "a killed producer's transaction is found and aborted", aborted),
)
