"""Transactions of 100 records over three partitions, with and without offsets, both brokers in turns; protocol 2."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from bench.client import Client, Unanswered
from bench.contenders import Contender, Spent, in_turns
from bench.conversations import hold
from bench.figures import Figure
from bench.frames import batch_of, fetch_frame, produce_frame
from bench.groups import Form
from bench.subjects import Bench, Running, remove
from bench.transactional_client import GROUP_KEY, Batch, Producing, Work, await_coordinator
from bench.transactional_reads import figures_of_reads
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TRANSACTION_VERSION: Final = 2
RECORD_SIZES: Final = ((100,) * 34, (100,) * 33, (100,) * 33)
"""Of the batches for the partitions."""
FETCH_SIZE: Final = 12 << 10
"""About what a transaction of 100 records consumes."""
QUICK_SHARE: Final = 4
WARM_UP_TRANSACTIONS: Final = 3_000


class Case(NamedTuple):
    """So many transactions in all, by so many producers at the same time."""

    name: str
    producers: int
    transactions: int
    has_offsets: bool = False


CASES: Final = (
    Case("transactions of 100 records, 3 partitions, one producer", 1, 4_000),
    Case("transactions of 100 records, 3 partitions, ten producers", 10, 12_000),
    Case("consume-transform-produce, 100 records, one producer", 1, 3_000, has_offsets=True),
    Case("consume-transform-produce, 100 records, ten producers", 10, 9_000, has_offsets=True),
)


class Run(NamedTuple):
    """Latencies in ascending order."""

    transactions: int
    seconds: float
    commits_ns: array[int]
    transactions_ns: array[int]
    refusals: int
    generator_cpu_s: float
    spent: Spent

    @property
    def rate(self) -> float:
        return self.transactions / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.spent.cpu.total_s / self.transactions * 1e6


def measure(bench: Bench, form: Form) -> list[Figure]:
    """The brokers of this group are its own: the others' are formatted for another transaction.version."""
    with ExitStack() as stack:
        contenders = []
        for name in bench.names:
            server = bench.new(name, TRANSACTION_VERSION)
            server.format()
            stack.callback(remove, server)
            contenders.append(Contender(stack.enter_context(Running(server))))
        share = QUICK_SHARE if form.is_quick else 1
        for contender in contenders:
            contender.warm_up(form.warm_up_s / 2)
        figures: list[Figure] = []
        for case in CASES:
            print(f"  {case.name}", flush=True)
            for contender in contenders:
                run_case(contender, case, WARM_UP_TRANSACTIONS // share)

            def run(contender: Contender, case: Case = case) -> Run:
                return run_case(contender, case, case.transactions // share)

            figures += figures_of(case, in_turns(contenders, form.rounds, run, sentence))
        return figures + figures_of_reads(contenders, form)


def run_case(contender: Contender, case: Case, transactions: int) -> Run:
    with contender.topic() as (client, source):
        topic = f"{source}-out"
        create(client, topic, len(RECORD_SIZES))
        group = f"{source}-group" if case.has_offsets else None
        fetch = _source(client, source) if group is not None else b""
        if group is not None:
            await_coordinator(client, group, GROUP_KEY)
        batches = [Batch(sizes, time.time_ns() // 1_000_000) for sizes in RECORD_SIZES]
        work = Work(topic, batches, group, fetch)
        producers = [Producing(client, f"{source}-{number}", work) for number in range(case.producers)]
        share = -(-transactions // case.producers)
        cpu_before = time.process_time()
        _, spent = contender.spend(
            lambda: hold(contender.port, [producer.transactions(share) for producer in producers])
        )
        generator_cpu_s = time.process_time() - cpu_before
        client.delete_topic(topic)
    return Run(
        share * case.producers,
        spent.seconds,
        array("Q", sorted(taken for producer in producers for taken in producer.commits_ns)),
        array("Q", sorted(taken for producer in producers for taken in producer.transactions_ns)),
        sum(producer.refusals for producer in producers),
        generator_cpu_s,
        spent,
    )


def create(client: Client, topic: str, partitions: int) -> None:
    """Returns once every partition takes records."""
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse, 5).topics[0]
    if answer.error_code != ErrorCode.NONE:
        raise Unanswered(f"topic {topic}: {answer.error_message}")
    for partition in range(partitions):
        client.produce_when_possible(topic, partition)


def _source(client: Client, topic: str) -> bytes:
    """Fill the topic with what one transaction consumes; the fetch of it."""
    client.exchange(produce_frame(topic, batch_of([100] * 100, time.time_ns() // 1_000_000)))
    return fetch_frame(topic, 1, FETCH_SIZE)


def figures_of(case: Case, runs: dict[str, list[Run]]) -> list[Figure]:
    generator = max(run.generator_cpu_s / run.seconds for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[Run], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"{case.name}: {what}", unit, values, less_is_better, generator=generator)

    return [
        figure("rate", "commits/s", lambda run: run.rate, less_is_better=False),
        figure("p50 of a commit", "ms", lambda run: at(run.commits_ns, 0.5)),
        figure("p99 of a commit", "ms", lambda run: at(run.commits_ns, 0.99)),
        figure("p50 of a transaction", "ms", lambda run: at(run.transactions_ns, 0.5)),
        figure("p99 of a transaction", "ms", lambda run: at(run.transactions_ns, 0.99)),
        figure("user + system CPU", "us", lambda run: run.cpu_us),
    ]


def at(latencies_ns: array[int], share: float) -> float:
    """A percentile, in milliseconds."""
    return latencies_ns[min(len(latencies_ns) - 1, int(share * len(latencies_ns)))] / 1e6


def sentence(run: Run) -> str:
    return (
        f"{run.rate:,.0f} commits/s,"
        f" a commit p50 {at(run.commits_ns, 0.5):.2f} ms, p99 {at(run.commits_ns, 0.99):.2f} ms,"
        f" a transaction p50 {at(run.transactions_ns, 0.5):.2f} ms, p99 {at(run.transactions_ns, 0.99):.2f} ms,"
        f" CPU {run.cpu_us:.0f} us, refused {run.refusals} times"
        f" (generator {100 * run.generator_cpu_s / run.seconds:.0f} % of a core)"
    )
