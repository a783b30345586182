"""Fetches of a log in which one transaction of ten was aborted: read_committed compared with read_uncommitted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench import load
from bench.client import Client
from bench.contenders import Contender, ContenderRun, run_in_turns
from bench.conversations import Conversation, run_conversations
from bench.figures import Figure
from bench.frames import FETCH_VERSION, RotatingFrames, fetch_error_position, request_frame
from bench.groups import RunForm
from bench.transactional_client import TransactionalBatch, TransactionalProducer, TransactionWork
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

NAME: Final = "fetch 1 MiB of transactions, 10 % aborted, 4 connections"
FETCH_SIZE: Final = 1 << 20
RECORD_SIZES: Final = (1_000,) * 64
TRANSACTIONS: Final = 4_096
"""The number of transactions, of one batch each: 256 MiB."""
ABORTED_EVERY: Final = 10
FILLERS: Final = 8
"""The number of producers at a time, because Apache Kafka commits a few dozen transactions of one producer a second."""
CONNECTIONS: Final = 4
REQUESTS: Final = 8_000
REQUESTS_QUICK: Final = 2_000
TURNS: Final = 8
"""The two levels are read in turns: what else the machine does changes a run of half a second by a fifth."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class IsolationPair(NamedTuple):
    """Two runs of the same fetches, one after the other: with read_committed and with read_uncommitted."""

    committed: list[ContenderRun]
    uncommitted: list[ContenderRun]


def figures_of_reads(contenders: Sequence[Contender], form: RunForm) -> list[Figure]:
    """Measure the reads on `contenders`, which have the same transaction.version."""
    print(f"  {NAME}", flush=True)
    requests = REQUESTS_QUICK if form.is_quick else REQUESTS

    def run(contender: Contender) -> IsolationPair:
        contender.warm_memory(TRANSACTIONS * sum(RECORD_SIZES))
        with contender.new_topic() as (client, topic):
            _fill(contender, client, topic)
            _read(contender, topic, READ_COMMITTED, requests // 10)
            pair = IsolationPair([], [])
            for _ in range(TURNS):
                pair.uncommitted.append(_read(contender, topic, READ_UNCOMMITTED, requests // TURNS))
                pair.committed.append(_read(contender, topic, READ_COMMITTED, requests // TURNS))
            return pair

    runs = run_in_turns(contenders, form.rounds, run, _sentence)
    rates = {name: [_rate(pair.committed) for pair in mine] for name, mine in runs.items()}
    shares = {name: [_rate(pair.committed) / _rate(pair.uncommitted) for pair in mine] for name, mine in runs.items()}
    cpu = {name: [_cpu(pair.committed) / _cpu(pair.uncommitted) for pair in mine] for name, mine in runs.items()}
    return [
        Figure(f"{NAME}: rate of read_committed", "MB/s", rates, less_is_better=False),
        Figure(f"{NAME}: read_committed in times read_uncommitted", "", shares, less_is_better=False),
        Figure(f"{NAME}: user + system CPU of read_committed in times read_uncommitted", "", cpu),
    ]


def _fill(contender: Contender, client: Client, topic: str) -> None:
    work = TransactionWork(topic, [contender.port], ())
    batch = TransactionalBatch(RECORD_SIZES, time.time_ns() // 1_000_000)

    def transactions(filler: int) -> Conversation:
        producer = TransactionalProducer(client, f"{topic}-filler-{filler}", work)
        for number in range(TRANSACTIONS // FILLERS):
            yield from producer.produce([batch])
            yield from producer.end_transaction(is_commit=number % ABORTED_EVERY != 0)

    run_conversations([transactions(filler) for filler in range(FILLERS)])


def _read(contender: Contender, topic: str, isolation_level: int, requests: int) -> ContenderRun:
    """Read the topic. A transaction with its marker takes one offset more than it has records."""
    pieces = TRANSACTIONS * sum(RECORD_SIZES) // FETCH_SIZE - 1
    step = (len(RECORD_SIZES) + 1) * FETCH_SIZE // sum(RECORD_SIZES)
    fetches = [_fetch_frame(topic, 1 + piece * step, isolation_level) for piece in range(pieces)]
    frames = [RotatingFrames(fetches, index * pieces // CONNECTIONS) for index in range(CONNECTIONS)]
    position = fetch_error_position(topic)
    return ContenderRun(
        *contender.measure_usage(
            lambda: load.run_load(contender.port, list(frames), in_flight=1, requests=requests, error_position=position)
        )
    )


def _fetch_frame(topic: str, offset: int, isolation_level: int) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_SIZE)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=FETCH_SIZE, isolation_level=isolation_level, topics=topics
    )
    return request_frame(request, FETCH_VERSION)


def _rate(runs: list[ContenderRun]) -> float:
    return _received(runs) / sum(run.outcome.seconds for run in runs) / 1e6


def _cpu(runs: list[ContenderRun]) -> float:
    return sum(run.spent.cpu.total_s for run in runs) / _received(runs)


def _received(runs: list[ContenderRun]) -> int:
    return sum(run.outcome.received_size for run in runs)


def _sentence(pair: IsolationPair) -> str:
    return (
        f"read_committed {_rate(pair.committed):,.0f} MB/s, {_cpu(pair.committed) * 1e9:.2f} s/GB;"
        f" read_uncommitted {_rate(pair.uncommitted):,.0f} MB/s, {_cpu(pair.uncommitted) * 1e9:.2f} s/GB"
    )
