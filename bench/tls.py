"""The cost of security: loads under both versions of TLS, a thousand handshakes at once, and 10,000 ACLs."""

from __future__ import annotations

from typing import Final

from bench import acls, load, throughput
from bench.contenders import ContenderRun, run_in_turns
from bench.figures import Figure
from bench.groups import RunForm
from bench.handshakes import measure_crowd
from bench.libssl import TlsSuite
from bench.secured import SecuredContender, make_suites, secured_contenders
from bench.subjects import Bench
from bench.workloads import LOADS, SMALL, Workload

NAMES: Final = (
    "produce 16 KiB, acks=all, 4 x 5",
    "produce 256 KiB, 4 x 5",
    "fetch 1 MiB from page cache, 4 connections",
    SMALL.name,
)
"""The names of the plain loads that have a bar under TLS, too."""
WARM_UP_SHARE: Final = 5
"""The part of a load that runs uncounted at first, so that a JVM compiles its cipher."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the parts that `form.case` names: a version of TLS, `handshakes` or `ACLs`."""
    figures: list[Figure] = []
    chosen, store = make_suites(bench.directory)
    wanted = [suite for suite in chosen if form.case in suite.name]
    if wanted or form.case in "handshakes":
        with secured_contenders(bench, chosen, store, form.warm_up_s) as brokers:
            for suite in wanted:
                for workload in workloads():
                    figures += measure_under_suite(brokers, suite, workload, form)
            if form.case in "handshakes":
                figures += measure_crowd(brokers, chosen[0], form)
    if form.case in "ACLs":
        figures += acls.measure(bench, form)
    return figures


def workloads() -> list[Workload]:
    by_name = {workload.name: workload for workload in LOADS}
    return [by_name[name] for name in NAMES]


def measure_under_suite(
    brokers: list[SecuredContender], suite: TlsSuite, workload: Workload, form: RunForm
) -> list[Figure]:
    """Measure one load under one suite, with some rounds on each broker in turn."""
    named = workload._replace(name=f"{suite.name}, {workload.name}")
    requests = workload.requests_quick if form.is_quick else workload.requests
    print(f"  {named.name}", flush=True)
    by_contender = {each.contender: each for each in brokers}
    for each in brokers:
        run_workload(each, suite, workload, max(requests // WARM_UP_SHARE, 100))
    runs = run_in_turns(
        list(by_contender),
        form.rounds,
        lambda contender: run_workload(by_contender[contender], suite, workload, requests),
        lambda result: throughput.run_note(named, result),
    )
    return throughput.figures_of(named, runs)


def run_workload(broker: SecuredContender, suite: TlsSuite, workload: Workload, requests: int) -> ContenderRun:
    """Run a closed loop on a topic of its own, which is created and filled over the plain listener."""
    contender = broker.contender
    contender.warm_memory(workload.log_size(requests))
    with contender.new_topic() as (client, topic):
        frames = workload.frames(client, topic)
        position = workload.error_position(topic)
        return ContenderRun(
            *contender.measure_usage(
                lambda: load.run_load(
                    broker.ports[suite.name],
                    frames,
                    in_flight=workload.in_flight,
                    requests=requests,
                    error_position=position,
                    tls=suite,
                )
            )
        )
