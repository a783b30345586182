"""Memory under load: twenty consumers that fetch 50 MB at a time while a producer writes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from bench import load
from bench.client import Client
from bench.contenders import Contender, ResourceUsage, run_in_turns, warmed_contenders
from bench.figures import Figure
from bench.frames import (
    Frames,
    batch_for_frame_size,
    fetch_error_position,
    fetch_frame,
    produce_error_position,
    produce_frame,
)
from bench.groups import RunForm
from bench.outcome import Outcome
from bench.subjects import Bench

NAME: Final = "RssAnon under load with 20 consumers fetching 50 MB each"
CONSUMERS: Final = 20
FETCH_SIZE: Final = 50_000_000
FETCHES_EACH: Final = 6
FETCHES_EACH_QUICK: Final = 2
FILL_FRAME_SIZE: Final = 256 << 10
PRODUCE_SIZE: Final = 16 << 10
PRODUCE_CONNECTIONS: Final = 4
IN_FLIGHT: Final = 5
PRODUCES_AT_A_TIME: Final = 2_000


class CrowdRun(NamedTuple):
    """The outcome of the fetches, the amount produced meanwhile, and the broker's resources."""

    fetched: Outcome
    produced_mb: float
    spent: ResourceUsage


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    contenders = warmed_contenders(bench, form)
    each = FETCHES_EACH_QUICK if form.is_quick else FETCHES_EACH

    def run(contender: Contender) -> CrowdRun:
        contender.warm_memory(1 << 30)
        with contender.new_topic() as (client, topic), contender.new_topic() as (_, other):
            _fill(client, topic)
            (fetched, produced_mb), spent = contender.measure_usage(lambda: _crowd(contender.port, topic, other, each))
            return CrowdRun(fetched, produced_mb, spent)

    runs = run_in_turns(contenders, form.rounds, run, _sentence)

    def values(of: str) -> dict[str, list[float]]:
        return {name: [getattr(run.spent, of) for run in mine] for name, mine in runs.items()}

    fetched = {
        name: [run.fetched.received_size / run.fetched.seconds / 1e6 for run in mine] for name, mine in runs.items()
    }
    generator = max(run.fetched.generator_share for mine in runs.values() for run in mine)
    return [
        Figure(f"{NAME}, at most", "MB", values("anonymous_mb_max"), generator=generator),
        Figure(f"{NAME}: fetched", "MB/s", fetched, less_is_better=False, generator=generator),
    ]


def _fill(client: Client, topic: str) -> None:
    """Produce more than one fetch returns."""
    frame = produce_frame(topic, batch_for_frame_size(topic, FILL_FRAME_SIZE, time.time_ns() // 1_000_000))
    for _ in range(FETCH_SIZE // FILL_FRAME_SIZE + 2):
        client.exchange(frame)


def _crowd(port: int, topic: str, other: str, fetches_each: int) -> tuple[Outcome, float]:
    """Fetch from one topic, and produce into the other until the last fetch is answered."""
    fetches = [Frames(fetch_frame(topic, 1, FETCH_SIZE), 1) for _ in range(CONSUMERS)]
    frame = produce_frame(other, batch_for_frame_size(other, PRODUCE_SIZE, time.time_ns() // 1_000_000))
    produced = 0
    with ThreadPoolExecutor(1) as beside:
        crowd = beside.submit(
            load.run_load,
            port,
            fetches,
            in_flight=1,
            requests=fetches_each * CONSUMERS,
            error_position=fetch_error_position(topic),
        )
        while not crowd.done():
            produces = [Frames(frame, IN_FLIGHT) for _ in range(PRODUCE_CONNECTIONS)]
            position = produce_error_position(other)
            outcome = load.run_load(
                port, produces, in_flight=IN_FLIGHT, requests=PRODUCES_AT_A_TIME, error_position=position
            )
            produced += outcome.sent_size
        return crowd.result(), produced / 1e6


def _sentence(run: CrowdRun) -> str:
    size, seconds = run.fetched.received_size, run.fetched.seconds
    return (
        f"{run.spent.anonymous_mb_max:.0f} MB at most; {size / 1e9:.1f} GB fetched at {size / seconds / 1e6:,.0f} MB/s,"
        f" {run.produced_mb:,.0f} MB produced meanwhile"
    )
