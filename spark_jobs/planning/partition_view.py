"""One partition over all origins: its offsets, and the origin from which each of them is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from spark_jobs.origins.port import PartitionOrigin, StoredSegment
from storage.checkpoints.offset_checkpoint import TopicPartition

_start_offset = attrgetter("start_offset")


class Piece(NamedTuple):
    """Offsets [start, end) of a segment of an origin; without a segment: no origin has these offsets."""

    offer: PartitionOrigin | None
    segment: StoredSegment | None
    start_offset: int
    end_offset: int


class PartitionView:
    """A partition as all origins together have it."""

    def __init__(self, offers: Sequence[PartitionOrigin]) -> None:
        """`offers` is not empty, and has the cheapest origin first."""
        self.offers = tuple(offers)
        self.key: TopicPartition = offers[0].key
        known = [each for each in offers if each.is_checkpointed]
        self.is_checkpointed = bool(known)
        self.newest: PartitionOrigin = max(known or offers, key=lambda each: each.high_watermark)
        """The origin with the highest high watermark."""
        self.log_start_offset = min(each.log_start_offset for each in offers)
        self.high_watermark = max(self.log_start_offset, self.newest.high_watermark)

    def __str__(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def has_segments(self) -> bool:
        return any(each.segments for each in self.offers)

    @property
    def size(self) -> int:
        """Bytes of the segments of the cheapest origin that has some: what the size of tasks is computed from."""
        return next((sum(segment.size for segment in each.segments) for each in self.offers if each.segments), 0)

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The lowest first offset, over the origins, whose record is at or after a time; None where there is none."""
        found = [offset for each in self.offers if (offset := each.offset_at(timestamp_ms)) is not None]
        return min(found, default=None)

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """The offsets [start, end) from the cheapest origin that has them, in order.

        A piece ends where a cheaper origin begins. A piece without a segment has offsets that no origin has.
        """
        at = start_offset
        while at < end_offset:
            limit = end_offset
            for offer in self.offers:
                slot = bisect_right(offer.segments, at, key=_start_offset)
                if slot and at < offer.segments[slot - 1].end_offset:
                    segment = offer.segments[slot - 1]
                    limit = min(limit, segment.end_offset)
                    yield Piece(offer, segment, at, limit)
                    break
                if slot < len(offer.segments):
                    limit = min(limit, offer.segments[slot].start_offset)
            else:
                yield Piece(None, None, at, limit)
            at = limit
