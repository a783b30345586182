"""Fetches the batches of a slice from the leader of its partition, in a task.

The next fetch is under way while the batches of the last one are decoded. With read_committed the batches of aborted
transactions are left out, as by a consumer. A response names these transactions in the order of their first offsets,
and a transaction ends with its marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.record_batch import MAGIC, BatchHeader
from moldau.storage.files.port import File
from moldau.tables.client.cluster import Cluster, check_error
from moldau.tables.client.fetching import fetch_partition, fetched_batches
from moldau.tables.client.settings import ConnectionSettings
from moldau.tables.origins.port import FoundBatch, Slice, upgrade_old_message
from moldau.tables.refusals import DataLost, Refused, TopicRecreated

FETCH_SIZE: Final = 8 << 20
"""The most bytes of a fetch response; one batch may be larger."""
WAIT_MS: Final = 500
BY_NAME: Final = 12
BY_ID: Final = 13
"""A version of Fetch that has the ids of topics; `BY_NAME` is the highest version that has their names."""


class FetchedPart(NamedTuple):
    """The part of a fetch response about the one partition of the request."""

    records: bytes
    aborted: Sequence[AbortedTransaction]


class BrokerBatches(NamedTuple):
    """The `BatchSource` that fetches batches from brokers."""

    settings: ConnectionSettings
    topic_id: bytes | None
    is_committed: bool

    def open(self, wanted: Slice) -> File:
        """Always raise `Refused`, because a broker serves records and not files."""
        raise Refused(f"{wanted}: this table reads files: it needs `path` beside kafka.bootstrap.servers")

    def batches(self, wanted: Slice) -> Iterator[FoundBatch]:
        """Yield the batches with offsets of a slice. If committed records are read, the batches of aborted transactions
        are left out. Raises `DataLost` if offsets were deleted, `TopicRecreated`, and `Refused`."""
        cluster = Cluster(self.settings)
        offset, last = wanted.start_offset, False
        try:
            with ThreadPoolExecutor(1) as thread:
                coming = thread.submit(self._fetch, cluster, wanted, offset)
                while True:
                    fetched = coming.result()
                    found = list(iterate_batches(fetched.records))
                    following = found[-1][1].last_offset + 1 if found else offset
                    # The last batches of a slice may be missing: compaction has removed them.
                    last = following >= wanted.end_offset or not found
                    if not last:
                        coming = thread.submit(self._fetch, cluster, wanted, following)
                    for position, header in without_aborted(found, fetched.aborted):
                        if header.magic != MAGIC:
                            newer = upgrade_old_message((position, header, fetched.records, position))
                            if newer[1].base_offset < wanted.end_offset:
                                yield newer
                        elif header.last_offset >= wanted.start_offset and header.base_offset < wanted.end_offset:
                            yield position, header, fetched.records, position
                    if last:
                        return
                    offset = following
        finally:
            cluster.close()

    def _fetch(self, cluster: Cluster, wanted: Slice, offset: int) -> FetchedPart:
        """Fetch from `offset` on. The part has batches, unless the slice has no more of them. Raises `DataLost` if the
        log ends before the slice."""
        return cluster.retry(str(wanted), lambda: self._ask(cluster, wanted, offset))

    def _ask(self, cluster: Cluster, wanted: Slice, offset: int) -> FetchedPart:
        key = wanted.topic, wanted.partition
        leader = cluster.leader_of(key)
        now = cluster.topic_id(wanted.topic)
        if self.topic_id is not None and now is not None and now != self.topic_id:
            raise TopicRecreated(f"{wanted}: the topic was deleted and another one of its name was created")
        partition = FetchPartition(partition=wanted.partition, fetch_offset=offset, partition_max_bytes=FETCH_SIZE)
        version = BY_NAME
        if self.topic_id is not None and leader.version_of(1, BY_ID) == BY_ID:
            version = BY_ID
        topic = (
            FetchTopic(topic_id=self.topic_id or b"", partitions=[partition])
            if version == BY_ID
            else FetchTopic(topic=wanted.topic, partitions=[partition])
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_SIZE,
            isolation_level=int(self.is_committed),
            topics=[topic],
        )
        answer = fetch_partition(leader, request, version, str(wanted))
        self._check(wanted, offset, answer)
        records = fetched_batches(leader, key, offset, wanted.end_offset, answer, is_committed=self.is_committed)
        return FetchedPart(records, (answer.aborted_transactions or ()) if self.is_committed else ())

    def _check(self, wanted: Slice, offset: int, answer: PartitionData) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise DataLost(f"{wanted}: offset {offset} is gone: the log starts at {answer.log_start_offset} now")
        if answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID:
            raise TopicRecreated(f"{wanted}: the topic was deleted and another one of its name was created")
        check_error(answer.error_code, str(wanted))


def without_aborted(
    found: Sequence[tuple[int, BatchHeader]], aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches of a fetch response that do not belong to its aborted transactions."""
    coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_producers: set[int] = set()
    for position, header in found:
        while coming and coming[-1].first_offset <= header.last_offset:
            open_producers.add(coming.pop().producer_id)
        if header.is_control:
            open_producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_producers:
            continue
        yield position, header
