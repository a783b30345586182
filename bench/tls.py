"""What security costs: loads under TLS of both versions, a thousand handshakes at once, and 10,000 ACLs."""

from __future__ import annotations

from typing import Final

from bench import acls, load, throughput
from bench.contenders import Run, in_turns
from bench.figures import Figure
from bench.groups import Form
from bench.handshakes import crowded
from bench.libssl import Suite
from bench.secured import Secured, secured, suites
from bench.subjects import Bench
from bench.workloads import LOADS, SMALL, Workload

NAMES: Final = (
    "produce 16 KiB, acks=all, 4 x 5",
    "produce 256 KiB, 4 x 5",
    "fetch 1 MiB from page cache, 4 connections",
    SMALL.name,
)
"""Of the plain loads, those that are held against a bar under TLS too."""
WARM_UP_SHARE: Final = 5
"""Of a load, run once and not counted: the JVM compiles its cipher first."""


def measure(bench: Bench, form: Form) -> list[Figure]:
    """`form.case` chooses by name: a version of TLS, `handshakes` or `ACLs`."""
    figures: list[Figure] = []
    chosen, store = suites(bench.directory)
    wanted = [suite for suite in chosen if form.case in suite.name]
    if wanted or form.case in "handshakes":
        with secured(bench, chosen, store, form.warm_up_s) as brokers:
            for suite in wanted:
                for workload in workloads():
                    figures += measured(brokers, suite, workload, form)
            if form.case in "handshakes":
                figures += crowded(brokers, chosen[0], form)
    if form.case in "ACLs":
        figures += acls.measure(bench, form)
    return figures


def workloads() -> list[Workload]:
    by_name = {workload.name: workload for workload in LOADS}
    return [by_name[name] for name in NAMES]


def measured(brokers: list[Secured], suite: Suite, workload: Workload, form: Form) -> list[Figure]:
    """One load under one suite, so many rounds with every broker in turn."""
    named = workload._replace(name=f"{suite.name}, {workload.name}")
    requests = workload.requests_quick if form.is_quick else workload.requests
    print(f"  {named.name}", flush=True)
    by_contender = {each.contender: each for each in brokers}
    for each in brokers:
        run(each, suite, workload, max(requests // WARM_UP_SHARE, 100))
    runs = in_turns(
        list(by_contender),
        form.rounds,
        lambda contender: run(by_contender[contender], suite, workload, requests),
        lambda result: throughput.sentence(named, result),
    )
    return throughput.figures_of(named, runs)


def run(broker: Secured, suite: Suite, workload: Workload, requests: int) -> Run:
    """A closed loop on a topic of its own, which is made and filled over the plain listener."""
    contender = broker.contender
    contender.warm_memory(workload.log_size(requests))
    with contender.topic() as (client, topic):
        frames = workload.frames(client, topic)
        position = workload.error_position(topic)
        return Run(
            *contender.spend(
                lambda: load.run(
                    broker.ports[suite.name],
                    frames,
                    in_flight=workload.in_flight,
                    requests=requests,
                    error_position=position,
                    tls=suite,
                )
            )
        )
