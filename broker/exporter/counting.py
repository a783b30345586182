"""Counts the records that groups have not read, as far as the budget of each sample allows. The next sample continues
at the offset that was reached.

    what a group has not read ──▶ counted before? ──▶ from there on, within the budget ──▶ kept for the next sample

The count of a range of offsets stays valid while the log grows, so counting again costs nothing for a group whose
committed offset does not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.broker.console.decoding.counting import NO_OFFSETS, OffsetSet, RecordCount
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import CountingBudget, count_unread
from moldau.broker.exporter.bounds import Partition

SAMPLE_BYTES_MAX: Final = (1 << 21, 1 << 18)
"""The most bytes that one sample reads: of all partitions together, and of one partition."""
COUNTED_MAX: Final = 600
"""The most partitions that one sample reads."""


class LagRange(NamedTuple):
    """The range of offsets of a partition that a group has not read, from `begin` to `end` (exclusive)."""

    key: Partition
    begin: int
    end: int
    isolation: int
    finished: OffsetSet | None = NO_OFFSETS
    """The offsets in the range that a share group will not deliver again; None if they are not known."""


class CountedLag(NamedTuple):
    """The lag of a group in one partition."""

    records: int
    is_counted: bool
    """Whether `records` was counted. If not, it is an upper bound."""
    first_ms: int | None
    """The timestamp of the first unread record; None if it is not known."""


CountKey = tuple[bytes, int, int, int]
"""The key by which a count is kept: topic id, partition, isolation level, and the first offset that was counted."""


class UnreadCounter:
    """Counts the records that groups have not read, within the budget of each sample. An unfinished count of a consumer
    group continues in the next sample. A count of a share group begins again, because acknowledgements change which
    records are counted.
    """

    def __init__(self) -> None:
        self._before: dict[CountKey, RecordCount] = {}
        self._now: dict[CountKey, RecordCount] = {}
        self._told: dict[CountKey, CountedLag] = {}
        """The results of this sample, but those of share groups. Groups at the same offset share them."""
        self._budget = CountingBudget(0, 0)
        self._left = 0
        self._topic_ids: dict[str, bytes] = {}
        """The ids of the topics in this sample, by name."""

    def begin(self) -> None:
        """Begin a sample, with a new budget. Counts that the previous sample did not use are dropped."""
        self._before, self._now, self._told, self._topic_ids = self._now, {}, {}, {}
        self._budget, self._left = CountingBudget(*SAMPLE_BYTES_MAX), COUNTED_MAX

    def key_of(self, client: KafkaClient, unread: LagRange) -> CountKey:
        """The key by which the count of an unread range is kept."""
        name, index = unread.key
        topic_id = self._topic_ids.get(name)
        if topic_id is None:
            topic = client.ports.cluster.image.topics.by_name(name)
            topic_id = self._topic_ids[name] = b"" if topic is None else topic.id
        return topic_id, index, unread.isolation, unread.begin

    def known_result(self, place: CountKey, unread: LagRange) -> CountedLag | None:
        """The result that this sample has already found for another group at the same offset. None if there is none,
        and for a share group.
        """
        return self._told.get(place) if unread.finished is NO_OFFSETS else None

    def keep_counts(self, places: Iterable[CountKey]) -> None:
        """Keep the finished counts of these partitions for this sample, because the offsets and logs of their group
        have not changed.
        """
        before = self._before
        self._now.update((place, before[place]) for place in places if place in before)

    async def count_behind(self, client: KafkaClient, place: CountKey, unread: LagRange) -> CountedLag:
        """Return how far a group is behind in one partition. The records are counted if the budget of the sample allows
        it.
        """
        counted = self._now.get(place) or self._before.get(place)
        finished = unread.finished
        if counted is None or counted.end > unread.end or finished is not NO_OFFSETS:
            counted = RecordCount(unread.begin, unread.end, finished or NO_OFFSETS)
        counted.end = unread.end
        if counted.offset < counted.end and self._left > 0 and self._budget.left > 0:
            self._left -= 1
            counted = await count_unread(
                client, unread.key, counted, self._budget, unread.isolation, dates_roughly=True
            )
        is_counted = counted.offset >= counted.end and finished is not None
        behind = CountedLag(counted.records + counted.offsets_left, is_counted, counted.first_ms)
        if finished is NO_OFFSETS:  # Which offsets a share group has behind it changes with each acknowledgement.
            self._now[place], self._told[place] = counted, behind
        return behind
