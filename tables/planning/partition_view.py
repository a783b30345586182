"""One partition over all sources of segments: its offsets, and the source from which each offset is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.origins.port import PartitionOrigin, StoredSegment
from moldau.tables.refusals import ClusterMismatch

_start_offset = attrgetter("start_offset")


class OriginRange(NamedTuple):
    """The offsets [start_offset, end_offset) of a segment of an origin (a source of segments). `segment` is None if no
    origin has these offsets."""

    offer: PartitionOrigin | None
    segment: StoredSegment | None
    start_offset: int
    end_offset: int


class PartitionView:
    """One partition over all its origins (sources of segments): its offsets, and the origin from which each offset is
    read."""

    def __init__(self, offers: Sequence[PartitionOrigin], *, is_committed: bool = False) -> None:
        """`offers` is not empty, and has the cheapest origin first.

        Raises `ClusterMismatch` if the origins have different topics of one name.
        """
        self._stable: dict[int, int] = {}
        self._is_capped = is_committed and len(offers) > 1 and any(each.tier == "broker" for each in offers)
        self.offers = tuple(offers)
        self.key: TopicPartition = offers[0].key
        if len({each.topic_id for each in offers if each.topic_id is not None}) > 1:
            places = " and ".join(each.place for each in offers)
            raise ClusterMismatch(f"{self}: {places} have different topics of this name")
        self.may_have_gaps = any(each.may_have_gaps for each in offers)
        known = [each for each in offers if each.is_checkpointed]
        self.is_checkpointed = bool(known)
        self.newest: PartitionOrigin = max(known or offers, key=lambda each: each.high_watermark)
        """The origin whose high watermark is highest."""
        known_start = max(each.log_start_known for each in offers)
        self.log_start_offset = max(known_start, min(each.log_start_offset for each in offers))
        self.high_watermark = max(self.log_start_offset, self.newest.high_watermark)

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def topic_id(self) -> bytes | None:
        """The id of the topic; None if no origin has stored it."""
        return next((each.topic_id for each in self.offers if each.topic_id is not None), None)

    @property
    def has_segments(self) -> bool:
        return any(each.segments for each in self.offers)

    @property
    def size(self) -> int:
        """The bytes of the partition's segments in the origin that has the most bytes. The number of tasks is computed
        from it."""
        return max(sum(segment.size for segment in each.segments) for each in self.offers)

    def last_stable_offset(self) -> int:
        """The last stable offset, from the origin with the highest high watermark. The other origins are not used: they
        may have the beginning of a transaction without its end."""
        return max(self.log_start_offset, self.newest.last_stable_offset())

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The lowest offset that an origin gives for the first record at or after `timestamp_ms`; None if no origin has
        such a record."""
        found = [offset for each in self.offers if (offset := each.offset_at(timestamp_ms)) is not None]
        return min(found, default=None)

    def has_offset(self, offset: int) -> bool:
        """Whether an origin has a segment with this offset."""
        for offer in self.offers:
            slot = bisect_right(offer.segments, offset, key=_start_offset)
            if slot and offset < offer.segments[slot - 1].end_offset:
                return True
        return False

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[OriginRange]:
        """Yield the offsets [start_offset, end_offset) in pieces, in order, each from the cheapest origin that has it.

        A piece ends at the offset from which on a cheaper origin has records. A piece without a segment has offsets
        that no origin has.
        """
        at = start_offset
        while at < end_offset:
            limit = end_offset
            for offer in self.offers:
                slot = bisect_right(offer.segments, at, key=_start_offset)
                if slot and at < (end := self._end_in(offer, offer.segments[slot - 1])):
                    segment = offer.segments[slot - 1]
                    limit = min(limit, end)
                    yield OriginRange(offer, segment, at, limit)
                    break
                if slot < len(offer.segments):
                    limit = min(limit, offer.segments[slot].start_offset)
            else:
                yield OriginRange(None, None, at, limit)
            at = limit

    def _end_in(self, offer: PartitionOrigin, segment: StoredSegment) -> int:
        """The end of the offsets that are read from a segment of an origin. Files that lag behind a broker do not show
        which of their open transactions were aborted later. So a read of committed records takes records past the last
        stable offset of the files from the broker."""
        if not self._is_capped:
            return segment.end_offset
        if id(offer) not in self._stable:
            self._stable[id(offer)] = offer.last_stable_offset()
        return min(segment.end_offset, self._stable[id(offer)])


def topic_ids_of(views: Iterable[PartitionView]) -> dict[str, str]:
    """The ids of topics as text, by name, if they are known. Raises `ClusterMismatch` if partitions with the same topic
    name have different topic ids, because a directory has some of a topic that was deleted."""
    found: dict[str, tuple[PartitionView, str]] = {}
    for view in views:
        if view.topic_id is None:
            continue
        first, known = found.setdefault(view.key[0], (view, uuid_text(view.topic_id)))
        if known != uuid_text(view.topic_id):
            raise ClusterMismatch(
                f"path: {first} and {view} are of different topics of this name, {known} and "
                f"{uuid_text(view.topic_id)}: leave out the one that was deleted"
            )
    return {topic: topic_id for topic, (_, topic_id) in sorted(found.items())}
