"""The time in which a new coordinator loads 100,000 transactional ids from one partition of `__transaction_state`."""

from __future__ import annotations

import time
from typing import Final

from bench.client import Client
from bench.coordinator_loading import LoadingRows, figures_of_loads, prepare_server
from bench.figures import Figure
from bench.groups import RunForm
from bench.start import compile_packages
from bench.subjects import Bench
from bench.transactional_client import init_producer
from bench.transactions import TRANSACTION_VERSION
from moldau.broker.config.internal_topics import TRANSACTION_STATE_TOPIC
from moldau.broker.coordinators.shards import partition_of
from moldau.coordinator.transaction.records import TransactionChange, record_of
from moldau.coordinator.transaction.transaction import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT, Transaction
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from moldau.protocol.record_builder import build_batch

STATE_PARTITIONS: Final = 4
"""The number of partitions of the topic in the brokers of a measurement."""
IDS_COUNT: Final = 100_000
TIMEOUT_MS: Final = 60_000
PARTITIONS_COUNT: Final = 3
ROWS: Final = LoadingRows(
    "transaction loading", "100,000 transactional ids", "transactional ids", "100,000 transactional ids"
)
STATES: Final = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)
"""The states of the last transaction of each id, with one record for each."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Start brokers in turns that were killed with the same log, and measure the loading and other requests
    meanwhile."""
    compile_packages()
    ids = transactional_ids()
    log = state_log(ids)
    servers = {
        name: prepare_server(
            bench.new_server(name, TRANSACTION_VERSION),
            TRANSACTION_STATE_TOPIC,
            log,
            lambda client: init_producer(client, ids[0]),
        )
        for name in bench.names
    }
    return figures_of_loads(servers, form.rounds, ROWS, lambda client: _wait_for(client, ids[-1]))


def transactional_ids() -> list[str]:
    """Return transactional ids that are all in one partition."""
    names = (f"application-{number}" for number in range(8 * IDS_COUNT))
    return [name for name in names if partition_of(name, STATE_PARTITIONS) == 0][:IDS_COUNT]


def state_log(ids: list[str]) -> bytes:
    """The log of committed transactions: a batch for each state of each id."""
    now_ms = time.time_ns() // 1_000_000
    partitions = frozenset(("output", index) for index in range(PARTITIONS_COUNT))
    log = bytearray()
    offset = 0
    for number, transactional_id in enumerate(ids):
        for state in STATES:
            held = frozenset() if state is COMPLETE_COMMIT else partitions
            value = Transaction(number, 1, TIMEOUT_MS, state, now_ms, held, now_ms, client_version=TRANSACTION_VERSION)
            record = record_of(TransactionChange(transactional_id, value), TRANSACTION_VERSION, now_ms)
            log += build_batch([record], base_offset=offset, base_sequence=0, partition_leader_epoch=0)
            offset += 1
    return bytes(log)


def _wait_for(client: Client, transactional_id: str) -> None:
    """Wait until the coordinator describes the transaction of this id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        answer = client.ask(request, DescribeTransactionsResponse, 0).transaction_states[0]
        if answer.error_code == ErrorCode.NONE:
            return
        time.sleep(0.02)
    raise AssertionError(f"the coordinator of {transactional_id} does not answer: error {answer.error_code}")
