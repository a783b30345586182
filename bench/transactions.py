"""Transactions of 100 records over three partitions, with and without offsets, both brokers in turns; protocol 2."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, Protocol

from bench.client import Client, Unanswered, connect_with_retries
from bench.contenders import Contender, run_in_turns
from bench.conversations import run_conversations
from bench.figures import Figure
from bench.frames import batch_of, fetch_frame, produce_frame
from bench.groups import RunForm
from bench.processes import CpuTime
from bench.subjects import Bench, RunningBroker, remove_server
from bench.transactional_client import (
    GROUP_KEY,
    ConsumedSource,
    TransactionalBatch,
    TransactionalProducer,
    TransactionWork,
    await_coordinator,
)
from bench.transactional_reads import NAME as READS
from bench.transactional_reads import figures_of_reads
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TRANSACTION_VERSION: Final = 2
RECORD_SIZES: Final = ((100,) * 34, (100,) * 33, (100,) * 33)
"""The record sizes of the batch for each partition."""
FETCH_SIZE: Final = 12 << 10
"""The size of what a transaction of 100 records consumes, approximately."""
QUICK_SHARE: Final = 4
WARM_UP_TRANSACTIONS: Final = 1_200


class TransactionCase(NamedTuple):
    """A number of transactions, by a number of concurrent producers."""

    name: str
    producers: int
    transactions: int
    has_offsets: bool = False
    rate: int | None = None
    """Transactions a second of all producers together; None if each begins its next one at once."""


CASES: Final = (
    TransactionCase("transactions of 100 records, 3 partitions, one producer", 1, 1_600),
    TransactionCase("transactions of 100 records, 3 partitions, ten producers", 10, 6_000),
    TransactionCase("transactions of 100 records, 3 partitions, ten producers at 300/s", 10, 2_400, rate=300),
    TransactionCase("consume-transform-produce, 100 records, one producer", 1, 1_500, has_offsets=True),
    TransactionCase("consume-transform-produce, 100 records, ten producers", 10, 4_500, has_offsets=True),
)


class TransactionRun(NamedTuple):
    """The result of a run. Latencies are in ascending order."""

    transactions: int
    seconds: float
    commits_ns: array[int]
    transactions_ns: array[int]
    refusals: int
    generator_cpu_s: float
    cpu: CpuTime
    """The CPU time of the broker, or of all nodes of a cluster."""

    @property
    def rate(self) -> float:
        return self.transactions / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu.total_s / self.transactions * 1e6


class TransactionSubject(Protocol):
    """A broker or a cluster under measurement."""

    @property
    def name(self) -> str: ...

    def client(self) -> Client: ...

    def create_topic(self, topic: str, partitions: int) -> Sequence[int]:
        """Create a topic. Returns the ports of the leaders, once every partition accepts records."""
        ...

    def delete_topic(self, topic: str) -> None: ...

    def measure_usage(self, work: Callable[[], None]) -> CpuTime:
        """Run `work`, and return the CPU time that all processes of the subject used meanwhile."""
        ...


class OneBroker:
    """A single node as a subject."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.name = contender.name

    def client(self) -> Client:
        return connect_with_retries(self.contender.port)

    def create_topic(self, topic: str, partitions: int) -> Sequence[int]:
        client = self.client()
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
        answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse, 5).topics[0]
        if answer.error_code != ErrorCode.NONE:
            raise Unanswered(f"topic {topic}: {answer.error_message}")
        for partition in range(partitions):
            client.produce_with_retries(topic, partition)
        client.close()
        return [self.contender.port] * partitions

    def delete_topic(self, topic: str) -> None:
        client = self.client()
        client.delete_topic(topic)
        client.close()

    def measure_usage(self, work: Callable[[], None]) -> CpuTime:
        return self.contender.measure_usage(work)[1].cpu


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure brokers of this group's own, because the others are formatted for another transaction.version."""
    with ExitStack() as stack:
        contenders = []
        for name in bench.names:
            server = bench.new_server(name, TRANSACTION_VERSION)
            server.format()
            stack.callback(remove_server, server)
            contenders.append(Contender(stack.enter_context(RunningBroker(server))))
        for contender in contenders:
            contender.warm_up(form.warm_up_s / 2)
        figures = figures_of_cases([OneBroker(each) for each in contenders], form)
        return figures + (figures_of_reads(contenders, form) if form.case in READS else [])


def figures_of_cases(
    subjects: Sequence[TransactionSubject], form: RunForm, prefix: str = "", share: int = 1
) -> list[Figure]:
    """Measure the cases that the form selects, on the subjects in turns. Only 1 / `share` of the transactions run. The
    names of the figures begin with `prefix`."""
    share *= QUICK_SHARE if form.is_quick else 1
    figures: list[Figure] = []
    for case in CASES:
        if form.case not in case.name:
            continue
        print(f"  {prefix}{case.name}", flush=True)
        for subject in subjects:
            run_case(subject, case, WARM_UP_TRANSACTIONS // share)

        def run(subject: TransactionSubject, case: TransactionCase = case) -> TransactionRun:
            return run_case(subject, case, case.transactions // share)

        figures += figures_of(f"{prefix}{case.name}", run_in_turns(subjects, form.rounds, run, run_note))
    return figures


def run_case(subject: TransactionSubject, case: TransactionCase, transactions: int) -> TransactionRun:
    """Run a case on topics of its own."""
    client = subject.client()
    number = time.monotonic_ns() // 1_000_000
    topic, consumed = f"{subject.name}-{number:015d}-out", f"{subject.name}-{number:015d}-in"
    leaders = subject.create_topic(topic, len(RECORD_SIZES))
    source = _source(subject, client, consumed) if case.has_offsets else None
    batches = [TransactionalBatch(sizes, time.time_ns() // 1_000_000) for sizes in RECORD_SIZES]
    work = TransactionWork(topic, leaders, batches, source)
    producers = [TransactionalProducer(client, f"{topic}-{each}", work) for each in range(case.producers)]
    share = -(-transactions // case.producers)
    cpu_before, began = time.process_time(), time.perf_counter()
    interval_s = case.producers / case.rate if case.rate else 0.0
    conversations = [
        producer.run_transactions(share, interval_s, interval_s * number / case.producers)
        for number, producer in enumerate(producers)
    ]
    cpu = subject.measure_usage(lambda: run_conversations(conversations))
    seconds, generator_cpu_s = time.perf_counter() - began, time.process_time() - cpu_before
    client.close()
    for each in (topic, *([consumed] if case.has_offsets else [])):
        subject.delete_topic(each)
    return TransactionRun(
        share * case.producers,
        seconds,
        array("Q", sorted(taken for producer in producers for taken in producer.commits_ns)),
        array("Q", sorted(taken for producer in producers for taken in producer.transactions_ns)),
        sum(producer.refusals for producer in producers),
        generator_cpu_s,
        cpu,
    )


def _source(subject: TransactionSubject, client: Client, topic: str) -> ConsumedSource:
    """Make a topic with the records that one transaction consumes, and a group of its own."""
    (leader,) = subject.create_topic(topic, 1)
    filler = connect_with_retries(leader)
    filler.exchange(produce_frame(topic, batch_of([100] * 100, time.time_ns() // 1_000_000)))
    filler.close()
    group = f"{topic}-group"
    return ConsumedSource(leader, fetch_frame(topic, 1, FETCH_SIZE), group, await_coordinator(client, group, GROUP_KEY))


def figures_of(name: str, runs: dict[str, list[TransactionRun]]) -> list[Figure]:
    generator = max(run.generator_cpu_s / run.seconds for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[TransactionRun], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"{name}: {what}", unit, values, less_is_better, generator=generator)

    return [
        figure("rate", "commits/s", lambda run: run.rate, less_is_better=False),
        figure("p50 of a commit", "ms", lambda run: percentile_ms(run.commits_ns, 0.5)),
        figure("p99 of a commit", "ms", lambda run: percentile_ms(run.commits_ns, 0.99)),
        figure("p50 of a transaction", "ms", lambda run: percentile_ms(run.transactions_ns, 0.5)),
        figure("p99 of a transaction", "ms", lambda run: percentile_ms(run.transactions_ns, 0.99)),
        figure("user + system CPU", "us", lambda run: run.cpu_us),
    ]


def percentile_ms(latencies_ns: array[int], share: float) -> float:
    """A percentile of latencies, in milliseconds."""
    return latencies_ns[min(len(latencies_ns) - 1, int(share * len(latencies_ns)))] / 1e6


def run_note(run: TransactionRun) -> str:
    return (
        f"{run.rate:,.0f} commits/s,"
        f" a commit p50 {percentile_ms(run.commits_ns, 0.5):.2f} ms, p99 {percentile_ms(run.commits_ns, 0.99):.2f} ms,"
        f" a transaction p50 {percentile_ms(run.transactions_ns, 0.5):.2f} ms,"
        f" p99 {percentile_ms(run.transactions_ns, 0.99):.2f} ms,"
        f" CPU {run.cpu_us:.0f} us, refused {run.refusals} times"
        f" (generator {100 * run.generator_cpu_s / run.seconds:.0f} % of a core)"
    )
