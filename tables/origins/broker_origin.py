"""A cluster of brokers as a source of segments: the records that a consumer sees, up to the current high watermark.

A client cannot ask a broker for its segments. So a partition is cut into spans of consecutive offsets, which are listed
as segments of an assumed size; a task fetches the offsets of its spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.tables.client.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Cluster, TopicDescription
from moldau.tables.origins.broker_batches import BrokerBatches
from moldau.tables.origins.port import PartitionOrigin, SegmentPart, StoredSegment

if TYPE_CHECKING:
    from moldau.storage.tiered.layout import SegmentObject

BROKER_READ_COST: Final = 100
"""The cost of reading an offset from brokers, which also serve other clients. It is so high that files and objects are
preferred.
"""
OFFSET_SIZE: Final = 128
"""The assumed bytes of the record at an offset."""
SPAN_OFFSETS: Final = (64 << 20) // OFFSET_SIZE


class BrokerOrigin:
    """The `Origin` that reads from a cluster of brokers."""

    def __init__(
        self, cluster: Cluster, topics: Sequence[str] | None, *, is_committed: bool, spans_min: int | None = None
    ) -> None:
        """`topics`: the topics to look up (None: all). `spans_min`: the least number of spans into which the offsets
        are cut; None gives spans of `SPAN_OFFSETS`.

        Raises `Refused` if no broker answers.
        """
        self._cluster = cluster
        self._is_committed = is_committed
        self._spans_min = spans_min
        self._topics: Mapping[str, TopicDescription] = cluster.topics(topics)
        self.cost = BROKER_READ_COST
        self.cluster_id = cluster.cluster_id

    def partitions(self) -> Mapping[TopicPartition, int]:
        """The partitions that exist, with the node ids of their leaders."""
        return {
            (topic, partition): leader
            for topic, described in self._topics.items()
            for partition, leader in described.leaders.items()
        }

    def missing(self) -> Mapping[TopicPartition, str]:
        """Return no partition, because brokers serve every partition."""
        return {}

    def open(self, keys: Sequence[TopicPartition]) -> list[PartitionOrigin]:
        """Request the offsets of these partitions from their leaders. Raises `Refused` if a partition has no leader
        before the timeout of the client."""
        here = self.partitions()
        wanted = [key for key in keys if key in here]
        if not wanted:
            return []
        starts = self._cluster.offsets_at(wanted, EARLIEST_TIMESTAMP)
        ends = self._cluster.offsets_at(wanted, LATEST_TIMESTAMP)
        count = sum(max(0, ends[key] - starts[key]) for key in wanted)
        span = SPAN_OFFSETS if self._spans_min is None else min(SPAN_OFFSETS, max(1, -(-count // self._spans_min)))
        return [self._partition(key, starts[key], ends[key], span) for key in wanted]

    def _partition(self, key: TopicPartition, start: int, end: int, span: int) -> BrokerPartition:
        topic_id = self._topics[key[0]].topic_id
        return BrokerPartition(
            self._cluster, key, topic_id, start, max(start, end), span, is_committed=self._is_committed
        )


class BrokerPartition:
    """The `PartitionOrigin` of a partition that brokers serve."""

    def __init__(
        self,
        cluster: Cluster,
        key: TopicPartition,
        topic_id: bytes | None,
        log_start_offset: int,
        high_watermark: int,
        span: int,
        *,
        is_committed: bool,
    ) -> None:
        self._cluster = cluster
        self.key = key
        self.topic_id = topic_id
        self.node_id: int | None = None
        self.tier = "broker"
        self.place = ", ".join(map(str, cluster.settings.bootstrap))
        self.source = BrokerBatches(cluster.settings, topic_id, is_committed)
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.is_checkpointed = True
        self.may_have_gaps = False
        self.incomplete: Sequence[SegmentObject] = ()
        self.lost_segments: Sequence[int] = ()
        self.log_start_known = log_start_offset
        name = f"{key[0]}-{key[1]} at {self.place}"
        starts = range(log_start_offset, high_watermark, span)
        ends = [*starts[1:], high_watermark]
        self.segments: Sequence[StoredSegment] = tuple(
            StoredSegment(start, end, (end - start) * OFFSET_SIZE, name, False)
            for start, end in zip(starts, ends, strict=bool(starts))
        )

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @cached_property
    def _last_stable_offset(self) -> int:
        return self._cluster.offsets_at([self.key], LATEST_TIMESTAMP, is_committed=True)[self.key]

    def last_stable_offset(self) -> int:
        """The last stable offset of the partition, requested from the leader once. Raises `Refused`."""
        return max(self.log_start_offset, min(self._last_stable_offset, self.high_watermark))

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return no transaction, because each fetch response names the aborted transactions of its batches."""
        return []

    def cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> list[SegmentPart]:
        """Return a single cut, because a task gets a broker's span by its offsets and not by positions."""
        size = (min(end_offset, segment.end_offset) - max(start_offset, segment.start_offset)) * OFFSET_SIZE
        return [SegmentPart(0, size, None)]

    def start_cuts(self, segment: StoredSegment, start_offset: int, end_offset: int, slice_size: int) -> None:
        """Do nothing: `cuts` does not wait for a storage."""

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is at or after `timestamp_ms`, requested from the leader; None if there is
        none. Raises `Refused`."""
        asked_ms = max(timestamp_ms, 0)  # Numbers below 0 are not times in a ListOffsets request.
        found = self._cluster.offsets_at([self.key], asked_ms)[self.key]
        return found if 0 <= found < self.high_watermark else None

    def largest_timestamp(self, segment: StoredSegment) -> int | None:
        return None

    def has_changed(self) -> bool:
        return False
