"""`df.write.format("moldau")` and `writeStream`: a task writes its rows, the driver ends the transactions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.spark_jobs.options.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.client.cluster import Cluster
    from moldau.tables.client.transaction import ProducerIdentity, TransactionOutcome

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark tells tasks the id of their streaming query."""
NO_QUERY: Final = "batch"


@dataclass
class WrittenTask(WriterCommitMessage):
    """The result of one attempt of a task: its transaction and the number of its records."""

    count: int
    query: str
    transaction: ProducerIdentity | None
    """The transaction of this attempt. None if the query does not write exactly once, or if there were no rows."""


class TopicWriter:
    """The common part of the writers of batch queries and of streaming queries. It is pickled into the tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write_task(self, batches: Iterator[pa.RecordBatch]) -> WrittenTask:
        """Write the rows of a task to topics. All records are acknowledged when this method returns.
        Raises `Refused`."""
        from moldau.protocol.compression import Codec
        from moldau.spark_jobs.writing.row_records import records_of
        from moldau.tables.client.producer import TopicProducer
        from moldau.tables.client.transaction import end_transaction, new_producer

        options, query = self._options, query_id()
        cluster = self.cluster()
        name = f"moldau-spark-{query}-{uuid4()}" if options.is_exactly_once else None
        identity = new_producer(cluster, name, options.transaction_timeout_ms)
        producer = TopicProducer(
            cluster,
            identity,
            codec=Codec[options.codec.upper()],
            batch_size=options.batch_size,
            first_partition=random.randrange(1 << 16),  # tasks begin at different partitions
        )
        try:
            for batch in batches:
                for record in records_of(batch, options.topic):
                    producer.send(record)
            producer.flush()
        except BaseException:
            if name is not None and producer.has_begun:
                end_transaction(cluster, identity, is_commit=False)
            raise
        finally:
            cluster.close()
        return WrittenTask(producer.count, query, identity if name is not None and producer.has_begun else None)

    def commit_tasks(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Commit the transactions of the tasks of a batch. Raises `TransactionsLost`, `Refused` and OSError."""
        if not self._options.is_exactly_once:
            return
        from moldau.spark_jobs.writing.commit import commit_batch
        from moldau.spark_jobs.writing.transaction_log import TransactionLog

        written = written_tasks(messages)
        query = next((each.query for each in written), NO_QUERY)
        place = self._options.transaction_log
        log = TransactionLog(place) if place is not None else None
        cluster = self.cluster()
        try:
            commit_batch(
                log,
                query,
                batch,
                transactions_of(written),
                lambda each, is_commit: end_transaction_of(cluster, each, is_commit),
            )
        finally:
            cluster.close()

    def abort_tasks(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the transactions of the task attempts that have ended. Those of other attempts are aborted by their
        timeout."""
        from moldau.spark_jobs.writing.commit import abort_all

        cluster = self.cluster()
        try:
            abort_all(
                transactions_of(written_tasks(messages)),
                lambda each, is_commit: end_transaction_of(cluster, each, is_commit),
            )
        finally:
            cluster.close()

    def cluster(self) -> Cluster:
        from moldau.tables.client.cluster import Cluster
        from moldau.tables.client.settings import client_settings_of

        return Cluster(client_settings_of(self._options.brokers, dict(self._options.client)))


class BatchTopicWriter(TopicWriter, DataSourceArrowWriter):
    """The writer of a batch query. With exactly once each attempt of a task has its own transaction, and the driver
    commits these transactions one after another."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_task(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.commit_tasks(messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the transactions of the attempts that have ended."""
        self.abort_tasks(messages)


class StreamTopicWriter(TopicWriter, DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.write_task(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.commit_tasks(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transactions of the attempts that have ended."""
        self.abort_tasks(messages)


def query_id() -> str:
    """The id of the streaming query to which this task belongs; `NO_QUERY` in a batch query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) if context is not None else None) or NO_QUERY


def end_transaction_of(cluster: Cluster, producer: ProducerIdentity, is_commit: bool) -> TransactionOutcome:
    from moldau.tables.client.transaction import end_transaction

    return end_transaction(cluster, producer, is_commit=is_commit)


def written_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenTask]:
    return [each for each in messages if isinstance(each, WrittenTask)]


def transactions_of(written: Sequence[WrittenTask]) -> list[ProducerIdentity]:
    return [each.transaction for each in written if each.transaction is not None]
