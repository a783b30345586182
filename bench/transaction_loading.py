"""100,000 transactional ids in one partition of `__transaction_state`: how long a new coordinator loads them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.client import Client
from bench.figures import Figure
from bench.frames import batch_of, produce_frame
from bench.groups import Form
from bench.pinger import Pinger
from bench.processes import cpu_time, memory
from bench.start import compile_packages
from bench.subjects import Bench, Running, Server, remove
from bench.transactional_client import init_producer
from bench.transactions import TRANSACTION_VERSION
from broker.config.internal_topics import TRANSACTION_STATE_TOPIC
from coordinator.runtime.partition import partition_of
from coordinator.transaction.records import TransactionChange, record_of
from coordinator.transaction.transaction import Transaction
from coordinator.transaction.transaction_state import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from protocol.record_builder import build_batch

OTHER_TOPIC: Final = "other"
STATE_PARTITIONS: Final = 4
"""As the brokers of a measurement are configured."""
IDS_COUNT: Final = 100_000
TIMEOUT_MS: Final = 60_000
PARTITIONS_COUNT: Final = 3
SEGMENT_NAME: Final = f"{0:020}.log"
STATES: Final = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)
"""Of the last transaction of each id, a record each."""


def measure(bench: Bench, form: Form) -> list[Figure]:
    """Brokers that were killed with the same log start in turns; other requests go on meanwhile."""
    compile_packages()
    ids = transactional_ids()
    log = state_log(ids)
    servers = {name: _prepared(bench.new(name, TRANSACTION_VERSION), ids[0], log) for name in bench.names}
    measured: dict[str, dict[str, list[float]]] = {}
    for _ in range(form.rounds):
        for name, server in servers.items():
            values = _load(server, ids[-1])
            print(f"  transaction loading {name}: {', '.join(f'{key} {value:.3g}' for key, value in values.items())}")
            for key, value in values.items():
                measured.setdefault(key, {}).setdefault(name, []).append(value)
    for server in servers.values():
        remove(server)
    names = {
        "loaded": ("100,000 transactional ids loaded", "s"),
        "cpu": ("100,000 transactional ids loaded: user + system CPU", "s"),
        "p99": ("p99 of other requests while transactional ids load", "ms"),
        "slowest": ("slowest of other requests while transactional ids load", "ms"),
        "memory": ("100,000 transactional ids loaded: anonymous memory", "MB"),
    }
    return [Figure(name, unit, measured[key]) for key, (name, unit) in names.items()]


def transactional_ids() -> list[str]:
    """Ids that one partition keeps."""
    names = (f"application-{number}" for number in range(8 * IDS_COUNT))
    return [name for name in names if partition_of(name, STATE_PARTITIONS) == 0][:IDS_COUNT]


def state_log(ids: list[str]) -> bytes:
    """A batch for each state of each id: a transaction that was committed."""
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


def _prepared(server: Server, transactional_id: str, log: bytes) -> Server:
    server.format()
    with Running(server) as running:
        client = running.connect()
        client.create_topic(OTHER_TOPIC)
        init_producer(client, transactional_id)
        running.kill()
    (Path(server.data) / f"{TRANSACTION_STATE_TOPIC}-0" / SEGMENT_NAME).write_bytes(log)
    return server


def _load(server: Server, last_id: str) -> dict[str, float]:
    """From when the broker answers until the last id of the log is there."""
    with Running(server) as running:
        client = running.connect()
        client.produce_when_possible(OTHER_TOPIC)
        began = time.perf_counter()
        cpu_before = cpu_time(running.pid)
        others = Pinger(server.port, produce_frame(OTHER_TOPIC, batch_of([100], time.time_ns() // 1_000_000)))
        _wait_for(client, last_id)
        others.end()
        values = {
            "loaded": time.perf_counter() - began,
            "cpu": cpu_time(running.pid).since(cpu_before).total_s,
            "p99": others.p99_ms,
            "slowest": others.slowest_ms,
            "memory": memory(running.pid).anonymous_mb,
        }
        running.kill()
        return values


def _wait_for(client: Client, transactional_id: str) -> None:
    """Until the coordinator describes the transaction of this id."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        answer = client.ask(request, DescribeTransactionsResponse, 0).transaction_states[0]
        if answer.error_code == ErrorCode.NONE:
            return
        time.sleep(0.02)
    raise AssertionError(f"the coordinator of {transactional_id} does not answer: error {answer.error_code}")
