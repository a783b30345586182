"""The job `replay`: writes a range of a topic to a topic again, in the order of each partition.

driver    Fixes the offsets, and cuts them into rounds, each with the same share of every partition.
round     A task for each partition reads its offsets and writes the records itself; Spark gets one row for each task.
          If the replay has a state, each task writes in a transaction. The driver stores its decision to commit,
          commits the transactions, and notes that the round is done.

The transactional id of a partition is the same in all rounds and attempts, so a new attempt aborts the transaction that
the last one left open. The table in `replay_state.py` says what a restart does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from moldau.spark_jobs.data_source import MoldauDataSource
from moldau.spark_jobs.jobs.job_options import committed_by_default, pinned_options
from moldau.spark_jobs.jobs.replay_state import DoneRounds, ReplayPlan, ReplayState, check_topics, commit_decided
from moldau.spark_jobs.options.write_options import BATCH_SIZE, TRANSACTION_TIMEOUT_MS
from moldau.spark_jobs.views.records import SegmentReader
from moldau.spark_jobs.views.schemas import row_batches
from moldau.spark_jobs.writing.commit import TransactionsLost, commit_all, text_of_lost
from moldau.spark_jobs.writing.writers import end_transaction_of
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.tables.client.producer import OutgoingRecord
from moldau.tables.client.transaction import ProducerIdentity, TransactionOutcome
from moldau.tables.options.read_options import ReadOptions, parse_options
from moldau.tables.refusals import DataLost, Refused, warn
from moldau.tables.views.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

    from moldau.protocol.record_builder import Record
    from moldau.tables.client.cluster import Cluster
    from moldau.tables.client.producer import TopicProducer
    from moldau.tables.origins.port import Slice, Task

TARGET_OPTION: Final = "replayto"
"""The option with the `ReplayTarget` of the tasks, as JSON."""
ROUND_SIZE: Final = 64 << 20
"""The bytes of segments in a round. A restart repeats at most one round, and its transactions stay short."""
ROUND_SECONDS: Final = 2
"""The time (s) in which a round is written if a rate is given."""
ROUNDS_MAX: Final = 1_000_000
REPLAY_ROW_COLUMNS: Final = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("records", LongType()),
        StructField("transactionalId", StringType()),
        StructField("producerId", LongType()),
        StructField("producerEpoch", IntegerType()),
    ]
)
"""The columns of the rows that the tasks return, one for each task. The last three are null without a transaction."""


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    """The topic into which a replay writes records, and the settings of its writers."""

    brokers: tuple[str, ...]
    topic: str
    client: Mapping[str, str] = field(default_factory=dict)
    """The settings of the client, whose names begin with `kafka.` and are in lower case."""
    codec: str = "lz4"
    keeps_timestamps: bool = False
    keeps_partitions: bool = False
    transactional_id: str | None = None
    """The beginning of the transactional ids of the tasks; None if the tasks write without transactions."""

    def cluster(self) -> Cluster:
        from moldau.tables.client.cluster import Cluster
        from moldau.tables.client.settings import client_settings_of

        return Cluster(client_settings_of(tuple(self.brokers), self.client))


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The arguments of a replay. `options` are the options of the data source, for one topic. The job reads committed
    records by default."""

    options: dict[str, str]
    topic: str
    target: ReplayTarget
    state: str | None = None
    """The directory of the replay's state. If it is None, the replay cannot be continued, and writes at least once."""
    rate: int | None = None
    """The most records to write in a second; None for no limit."""
    is_anew: bool = False
    """Whether this run forgets the state of earlier runs, and begins with the first record."""


class TargetTopic(NamedTuple):
    """The topic into which a replay writes, as its cluster describes it."""

    cluster_id: str | None
    topic_id: str | None
    partitions: int


class PlannedReplay(NamedTuple):
    """The plan of a replay, and the part of it that is left for this run. It is made before Spark is started."""

    job: ReplayJob
    plan: ReplayPlan
    size: int
    """The bytes of segments of the rounds that are not done."""
    done: int
    """The number of rounds that earlier runs have done."""
    records: int
    """The number of records that earlier runs have written."""
    target_partitions: int


def plan_replay(job: ReplayJob) -> PlannedReplay:
    """Plan a run of a replay: fix the offsets of a new replay, or take the offsets of the state to continue. Raises
    `Refused`, `TopicRecreated` if the state is of a topic that was deleted, `CorruptCheckpoint`, `RemoteStorageError`
    and OSError."""
    from moldau.storage.files.local_files import LocalFiles
    from moldau.tables.planning.partition_view import topic_ids_of
    from moldau.tables.planning.planner import Planner

    job = replace(job, options=committed_by_default(job.options))
    target = describe_target(job.target)
    state = ReplayState(job.state) if job.state is not None and not job.is_anew else None
    known, done = (state.read_plan(), state.done()) if state is not None else (None, DoneRounds(0, 0, 0))
    options = job.options
    if known is not None:  # What is done may have been deleted meanwhile.
        begun = known.round_ranges(done.rounds)
        options = options_of_ranges(job, {each: (begun[each][0], end) for each, (_, end) in known.ranges.items()})
    planner = Planner(LocalFiles(), parse_options(options))
    topic_id = topic_ids_of(planner.views()).get(job.topic)
    if known is not None:
        check_topics(str(job.state), known, topic_id, target.topic_id)
    planned = planner.plan()
    ranges = {each.key[1]: (each.start_offset, each.end_offset) for each in planned.ranges}
    if job.target.keeps_partitions and ranges and max(ranges) >= target.partitions:
        raise Refused(
            f"--keep-partitions: {job.topic} has partition {max(ranges)}, and {job.target.topic} has "
            f"{target.partitions} partitions"
        )
    offsets_count = sum(end - start for start, end in ranges.values())
    rounds = max(1, -(-planned.size // ROUND_SIZE))
    if job.rate is not None:
        rounds = max(rounds, -(-offsets_count // (job.rate * ROUND_SECONDS)))
    plan = ReplayPlan(
        uuid4().hex,
        job.topic,
        planned.cluster_id,
        job.target.topic,
        target.cluster_id,
        options_to_compare(job),
        ranges,
        max(1, min(rounds, ROUNDS_MAX, offsets_count)),
        topic_id,
        target.topic_id,
    )
    if known is not None and (different := plan.differences(known)):
        raise Refused(f"{job.state} has the state of another replay: {', '.join(different)} differ")
    return PlannedReplay(job, known or plan, planned.size, done.rounds, done.records, target.partitions)


def options_of_ranges(job: ReplayJob, ranges: Mapping[int, tuple[int, int]]) -> dict[str, str]:
    """Return the options of Spark's source with which it reads exactly these ranges of the replayed topic. `ranges`:
    the [start, end) offsets by partition."""
    starts = {(job.topic, partition): start for partition, (start, _) in ranges.items()}
    ends = {(job.topic, partition): end_offset for partition, (_, end_offset) in ranges.items()}
    return pinned_options(job.options, starts, ends)


def describe_target(target: ReplayTarget) -> TargetTopic:
    """Ask the brokers for the topic into which a replay writes. Raises `Refused`."""
    cluster = target.cluster()
    try:
        described = cluster.topics([target.topic]).get(target.topic)
        if described is None or not described.leaders:
            raise Refused(f"there is no topic {target.topic} at {', '.join(target.brokers)}")
        topic_id = uuid_text(described.topic_id) if described.topic_id is not None else None
        return TargetTopic(cluster.cluster_id, topic_id, len(described.leaders))
    finally:
        cluster.close()


def options_to_compare(job: ReplayJob) -> dict[str, str]:
    """Return the options that a run which continues a replay must repeat. Paths and addresses are left out, because
    they may differ."""
    left_out = ("path", "kafka.bootstrap.servers")
    chosen = {
        name: value
        for name, value in job.options.items()
        if name.lower() not in left_out and not name.lower().startswith(("kafka.s", "moldau."))
    }
    kept = {"keeps_timestamps": job.target.keeps_timestamps, "keeps_partitions": job.target.keeps_partitions}
    return chosen | {name: str(value) for name, value in kept.items()}


def run_replay(session: SparkSession, planned: PlannedReplay, say: Callable[[str], None]) -> int:
    """Run a replay on Spark. Returns the number of records that were written, including those of earlier runs.

    Raises `TransactionsLost`, `Refused`, OSError, and PySparkException of a task.
    """
    job, plan = planned.job, planned.plan
    session.dataSource.register(ReplaySource)
    if job.state is None:
        return run_rounds(planned, lambda number: write_round(session, planned, number, None), say)
    state = ReplayState(job.state)
    with state.locked():
        if job.is_anew:
            discard_replay(state, job.target)
        if state.read_plan() is None:
            state.write_plan(plan)
        elif state.done().rounds != planned.done:
            raise Refused(f"{state.directory}: another run has continued this replay meanwhile")
        return run_rounds(planned, lambda number: commit_round(session, planned, number, state), say)


def run_rounds(
    planned: PlannedReplay,
    write: Callable[[int], int],
    say: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Write the remaining rounds of a replay, not faster than its rate. Returns the number of records of all rounds."""
    plan, records, started = planned.plan, planned.records, now()
    state = ReplayState(planned.job.state) if planned.job.state is not None else None
    written = 0
    for number in range(planned.done, plan.rounds):
        count = write(number)
        written += count
        records += count
        if state is not None:
            state.note_done(DoneRounds(number + 1, records, 0))
        seconds = now() - started
        rounds = f"{number + 1:,} of {plan.rounds:,} rounds"
        say(f"{seconds:.0f} s: {records:,} of up to {plan.offsets_count:,} records, {rounds}")
        if planned.job.rate is not None and number + 1 < plan.rounds:
            sleep(max(0.0, written / planned.job.rate - seconds))
    return records


def commit_round(session: SparkSession, planned: PlannedReplay, number: int, state: ReplayState) -> int:
    """Write and commit a round of a replay. If an earlier run has decided to commit it, only commit it. Returns the
    number of records of the round."""
    replay_id, cluster = planned.plan.replay_id, planned.job.target.cluster()

    def finish(each: ProducerIdentity, is_commit: bool) -> TransactionOutcome:
        return end_transaction_of(cluster, each, is_commit)

    try:
        decided = state.log.read(replay_id, number)
        if commit_decided(replay_id, number, decided, finish):
            return state.done().pending
        transactions: list[ProducerIdentity] = []
        try:
            count = write_round(session, planned, number, transactions)
        except BaseException:
            abort_open(cluster, planned.plan)
            raise
        state.note_done(state.done()._replace(pending=count))
        state.log.write(replay_id, number, transactions)
        lost = commit_all(transactions, finish)
        if lost:
            raise TransactionsLost(text_of_lost(replay_id, number, lost, len(transactions)))
        return count
    finally:
        cluster.close()


def discard_replay(state: ReplayState, target: ReplayTarget) -> None:
    """Discard the state of a replay, and abort the transactions that it has left open, so that no reader waits for
    them.
    """
    known = state.read_plan()
    if known is not None and state.done().rounds < known.rounds:
        cluster = target.cluster()
        try:
            abort_open(cluster, known)
        finally:
            cluster.close()
    state.discard()


def abort_open(cluster: Cluster, plan: ReplayPlan) -> None:
    """Abort the transactions that the tasks of a failed round have left open, by a new producer with the same
    transactional id.
    """
    from moldau.tables.client.transaction import new_producer

    for partition in plan.ranges:
        try:
            new_producer(cluster, f"{transactional_id_of(plan)}-{partition}", TRANSACTION_TIMEOUT_MS)
        except Refused as problem:
            warn(f"a transaction was not aborted, and holds read_committed readers up until its timeout: {problem}")


def transactional_id_of(plan: ReplayPlan) -> str:
    """The beginning of the transactional ids of a replay."""
    return f"moldau-replay-{plan.replay_id}"


def write_round(
    session: SparkSession, planned: PlannedReplay, number: int, transactions: list[ProducerIdentity] | None
) -> int:
    """Write the records of one round of a replay. If `transactions` is a list, write them in transactions, and append
    the producer of each transaction to the list. Returns the number of records."""
    plan = planned.plan
    target = planned.job.target
    if transactions is not None:
        target = replace(target, transactional_id=transactional_id_of(plan))
    options = options_of_ranges(planned.job, plan.round_ranges(number)) | {TARGET_OPTION: json.dumps(asdict(target))}
    count = 0
    rows = session.read.format(ReplaySource.name()).options(**options).load().collect()
    for _, records, name, producer_id, epoch in rows:
        count += records
        if transactions is not None and name is not None:
            transactions.append(ProducerIdentity(name, producer_id, epoch))
    return count


class ReplaySource(MoldauDataSource):
    """The data source whose tasks write the records that they read to a topic."""

    @classmethod
    def name(cls) -> str:
        return "moldau_replay"

    def schema(self) -> StructType:
        return REPLAY_ROW_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        given = dict(self.options.items())
        target = ReplayTarget(**json.loads(given.pop(TARGET_OPTION)))
        return ReplayReader(parse_options(given), target)


class ReplayReader(SegmentReader):
    """Writes the records of each partition to a topic, in the order of their offsets."""

    def __init__(self, options: ReadOptions, target: ReplayTarget) -> None:
        super().__init__(options, [])
        self._target = target

    def partitions(self) -> list[InputPartition]:
        slices = [each for task in self.plan().tasks for each in task]
        return [InputPartition(tuple(group)) for _, group in groupby(slices, lambda each: each.partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Task = partition.value or ()
        rows = [self._write(task)] if task else []
        return row_batches(rows, REPLAY_ROW_COLUMNS, REPLAY_ROW_COLUMNS.fieldNames())

    def _write(self, task: Task) -> Row:
        """Write the records of a task to the topic. All are acknowledged when this method returns. Raises `Refused`,
        `DataLost`, `MalformedMessage` and OSError."""
        from moldau.protocol.compression import Codec
        from moldau.tables.client.producer import TopicProducer
        from moldau.tables.client.transaction import end_transaction, new_producer

        target, partition = self._target, task[0].partition
        cluster = target.cluster()
        name = f"{target.transactional_id}-{partition}" if target.transactional_id is not None else None
        identity = new_producer(cluster, name, TRANSACTION_TIMEOUT_MS)
        producer = TopicProducer(
            cluster, identity, codec=Codec[target.codec.upper()], batch_size=BATCH_SIZE, first_partition=partition
        )
        try:
            for each in task:
                self._send(each, producer)
            producer.flush()
        except BaseException:
            if name is not None and producer.has_begun:
                end_transaction(cluster, identity, is_commit=False)
            raise
        finally:
            cluster.close()
        is_open = name is not None and producer.has_begun
        return (partition, producer.count, *(identity if is_open else (None, None, None)))

    def _send(self, wanted: Slice, producer: TopicProducer) -> None:
        """Send the records of a slice. If its segment has been removed, report the loss as the option failOnDataLoss
        says."""
        try:
            for record in records_in(wanted):
                producer.send(outgoing_record(record, wanted.partition, self._target))
        except DataLost as gone:
            self.report(gone)


def records_in(wanted: Slice) -> Iterator[Record]:
    """The records of a slice. Raises `MalformedMessage`, `DataLost` and OSError."""
    from moldau.protocol.record_reader import decode_records
    from moldau.tables.decoding.segment_batches import chunks_of

    for chunk in chunks_of(wanted):
        for header, buffer, start, end_position in chunk.bodies:
            for record in decode_records(bytes(chunk.buffers[buffer][start:end_position]), header):
                if wanted.start_offset <= record.offset < wanted.end_offset:
                    yield record


def outgoing_record(record: Record, partition: int, target: ReplayTarget) -> OutgoingRecord:
    """Make the record to write from a record that was read. It gets the time of the writer if timestamps are not kept,
    or if the read record has no timestamp."""
    keeps_time = target.keeps_timestamps and record.timestamp >= 0
    return OutgoingRecord(
        target.topic,
        partition if target.keeps_partitions else None,
        record.key,
        record.value,
        record.headers,
        record.timestamp if keeps_time else None,
    )
