"""Fetches of a log in which one transaction of ten was aborted: what read_committed costs beside read_uncommitted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench import load
from bench.client import Client
from bench.contenders import Contender, Run, in_turns
from bench.conversations import Conversation, hold
from bench.figures import Figure
from bench.frames import FETCH_VERSION, RotatingFrames, fetch_error_position, request_frame
from bench.groups import Form
from bench.transactional_client import Batch, Producing, Work
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

NAME: Final = "fetch 1 MiB of transactions, 10 % aborted, 4 connections"
FETCH_SIZE: Final = 1 << 20
RECORD_SIZES: Final = (1_000,) * 64
TRANSACTIONS: Final = 4_096
"""Of one batch each: 256 MiB."""
ABORTED_EVERY: Final = 10
FILLERS: Final = 8
"""Producers at a time: Apache Kafka commits a few dozen transactions of one producer a second."""
CONNECTIONS: Final = 4
REQUESTS: Final = 8_000
REQUESTS_QUICK: Final = 2_000
TURNS: Final = 8
"""The two levels are read in turns: what else the machine does changes a run of half a second by a fifth."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class Pair(NamedTuple):
    """Runs of the same fetches in turns: read_committed and read_uncommitted."""

    committed: list[Run]
    uncommitted: list[Run]


def figures_of_reads(contenders: Sequence[Contender], form: Form) -> list[Figure]:
    """`contenders` have the same transaction.version."""
    print(f"  {NAME}", flush=True)
    requests = REQUESTS_QUICK if form.is_quick else REQUESTS

    def run(contender: Contender) -> Pair:
        contender.warm_memory(TRANSACTIONS * sum(RECORD_SIZES))
        with contender.topic() as (client, topic):
            _fill(contender, client, topic)
            _read(contender, topic, READ_COMMITTED, requests // 10)
            pair = Pair([], [])
            for _ in range(TURNS):
                pair.uncommitted.append(_read(contender, topic, READ_UNCOMMITTED, requests // TURNS))
                pair.committed.append(_read(contender, topic, READ_COMMITTED, requests // TURNS))
            return pair

    runs = in_turns(contenders, form.rounds, run, _sentence)
    rates = {name: [_rate(pair.committed) for pair in mine] for name, mine in runs.items()}
    shares = {name: [_rate(pair.committed) / _rate(pair.uncommitted) for pair in mine] for name, mine in runs.items()}
    cpu = {name: [_cpu(pair.committed) / _cpu(pair.uncommitted) for pair in mine] for name, mine in runs.items()}
    return [
        Figure(f"{NAME}: rate of read_committed", "MB/s", rates, less_is_better=False),
        Figure(f"{NAME}: read_committed in times read_uncommitted", "", shares, less_is_better=False),
        Figure(f"{NAME}: user + system CPU of read_committed in times read_uncommitted", "", cpu),
    ]


def _fill(contender: Contender, client: Client, topic: str) -> None:
    work = Work(topic, [contender.port], ())
    batch = Batch(RECORD_SIZES, time.time_ns() // 1_000_000)

    def transactions(filler: int) -> Conversation:
        producer = Producing(client, f"{topic}-filler-{filler}", work)
        for number in range(TRANSACTIONS // FILLERS):
            yield from producer.produce([batch])
            yield from producer.end(is_commit=number % ABORTED_EVERY != 0)

    hold([transactions(filler) for filler in range(FILLERS)])


def _read(contender: Contender, topic: str, isolation_level: int, requests: int) -> Run:
    """A transaction and its marker take one offset more than it has records."""
    pieces = TRANSACTIONS * sum(RECORD_SIZES) // FETCH_SIZE - 1
    step = (len(RECORD_SIZES) + 1) * FETCH_SIZE // sum(RECORD_SIZES)
    fetches = [_fetch_frame(topic, 1 + piece * step, isolation_level) for piece in range(pieces)]
    frames = [RotatingFrames(fetches, index * pieces // CONNECTIONS) for index in range(CONNECTIONS)]
    position = fetch_error_position(topic)
    return Run(
        *contender.spend(
            lambda: load.run(contender.port, list(frames), in_flight=1, requests=requests, error_position=position)
        )
    )


def _fetch_frame(topic: str, offset: int, isolation_level: int) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_SIZE)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=FETCH_SIZE, isolation_level=isolation_level, topics=topics
    )
    return request_frame(request, FETCH_VERSION)


def _rate(runs: list[Run]) -> float:
    return _received(runs) / sum(run.outcome.seconds for run in runs) / 1e6


def _cpu(runs: list[Run]) -> float:
    return sum(run.spent.cpu.total_s for run in runs) / _received(runs)


def _received(runs: list[Run]) -> int:
    return sum(run.outcome.received_size for run in runs)


def _sentence(pair: Pair) -> str:
    return (
        f"read_committed {_rate(pair.committed):,.0f} MB/s, {_cpu(pair.committed) * 1e9:.2f} s/GB;"
        f" read_uncommitted {_rate(pair.uncommitted):,.0f} MB/s, {_cpu(pair.uncommitted) * 1e9:.2f} s/GB"
    )
