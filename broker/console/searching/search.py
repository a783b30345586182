"""Searches a topic for the newest or the oldest records that are wanted, over all partitions. Records are shown as they
are found.

    partitions ──▶ the one that is furthest behind in time ──▶ its next stretch ──▶ a process looks for records
         ▲                                                                            │
         └──── until the wanted number is found and no other can come before ◀────────┘──▶ events with what was seen

A stretch is a run of consecutive batches of at most about `STRETCH_MAX` bytes, which is searched at once. A search
keeps only the records that it shows. It ends when its client disconnects: the worker process then has
`limited_work.CANCELLED_GRACE_S` seconds to finish its stretch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, SelectedRecords, ShownRecord
from moldau.broker.console.decoding.work import SearchResult
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.partitions import Partition
from moldau.broker.console.searching.stretches import STRETCH_MAX, Unreadable, stretch_at, window_before
from moldau.broker.runtime.limited_work import WorkProcessEnded
from moldau.protocol.record_batch import NO_TIMESTAMP

SEARCH_MS: Final = 600_000
"""The time (ms) after which a search ends."""
EVENT_MS: Final = 200
"""The time (ms) after which an event is sent even if no record was found."""
STRETCH_MIN: Final = 1 << 20
CHARACTERS: Final = 1 << 18
"""The number of characters after which no further record of a stretch is shown."""
PLANS_MAX: Final = 4
"""The most attempts to find and read a stretch: compaction or retention may replace its file meanwhile."""
END_FULL: Final = "as many records as asked for"
END_WHOLE: Final = "all was looked at"
END_LATE: Final = f"it ends after {SEARCH_MS // 60_000} min"


@dataclass(slots=True)
class BackwardWindow:
    """The range of offsets that a search for the newest records reads next. It is the last range of a partition that is
    not read yet. Its records count as found when the whole range has been read.
    """

    begin: int
    offset: int
    """The offset up to which the window has been read."""
    found: list[ShownRecord] = field(default_factory=list)


@dataclass(slots=True)
class PartitionSearch:
    """The part of a partition that is still to be searched: the offsets from `first` to `end` (exclusive)."""

    key: Partition
    first: int
    end: int
    frontier_ms: float
    """A bound on the timestamps in that part, assuming that timestamps ascend with the offsets: the largest in a search
    for the newest records, the smallest in a search for the oldest.
    """
    found: int = 0
    window: BackwardWindow | None = None

    @property
    def left(self) -> int:
        """The number of offsets that are not read yet."""
        seen = 0 if self.window is None else self.window.offset - self.window.begin
        return max(self.end - self.first - seen, 0)


class SearchEvent(NamedTuple):
    """An event of a search: the records found since the previous event, and the progress."""

    records: list[ShownRecord]
    """The records found since the previous event."""
    offsets: int
    of_offsets: int
    bytes: int
    """The stored bytes of the batches that were searched."""
    ms: int
    """The time (ms) since the search began."""
    errors: list[str]
    end: str = ""
    """Why the search has ended; empty if it continues."""


@dataclass(slots=True)
class Search:
    """One search of a topic. `ranges` has the start offset and the end offset (exclusive) of each partition."""

    client: KafkaClient
    wanted: RecordFilter
    ranges: Mapping[Partition, tuple[int, int]]
    limit: int
    is_newest: bool
    errors: list[str] = field(default_factory=list)
    _lanes: list[PartitionSearch] = field(default_factory=list)
    _kept: list[tuple[int, int, int]] = field(default_factory=list)
    """The ranks of the best `limit` records so far, the best one first. A rank is a tuple of timestamp, partition and
    offset. In a search for the newest records, timestamp and offset are negated.
    """
    _new: list[ShownRecord] = field(default_factory=list)
    _bytes: int = 0
    _size: int = STRETCH_MAX
    """The number of bytes of the next stretch."""

    async def events(self) -> AsyncIterator[SearchEvent]:
        """Yield the events of the search until it ends."""
        now_ms = self.client.ports.environment.monotonic_ms
        began_ms = told_ms = now_ms()
        total = sum(max(end - first, 0) for first, end in self.ranges.values())
        start = float("inf") if self.is_newest else float("-inf")
        self._lanes = [PartitionSearch(key, *each, start) for key, each in self.ranges.items() if each[0] < each[1]]

        def seen(end: str = "") -> SearchEvent:
            records, self._new = self._new, []
            left = 0 if end == END_WHOLE else sum(each.left for each in self._lanes)
            return SearchEvent(records, total - left, total, self._bytes, now_ms() - began_ms, list(self.errors), end)

        yield seen()
        end = END_WHOLE
        while self._lanes:
            lane = (max if self.is_newest else min)(self._lanes, key=lambda each: each.frontier_ms)
            if self._is_settled(lane):
                end = END_FULL
                break
            if now_ms() - began_ms > SEARCH_MS:
                end = END_LATE
                break
            await self._look(lane)
            if lane.first >= lane.end or lane.found >= self.limit:
                self._lanes.remove(lane)
            if self._new or now_ms() - told_ms > EVENT_MS:
                told_ms = now_ms()
                yield seen()
        yield seen(END_FULL if end == END_WHOLE and len(self._kept) >= self.limit else end)

    def _is_settled(self, lane: PartitionSearch) -> bool:
        """Whether the search of a lane may stop: `limit` records were found, and no record of the lane can rank before
        the last of them.
        """
        if len(self._kept) < self.limit:
            return False
        worst = self._kept[-1][0]
        return lane.frontier_ms < -worst if self.is_newest else lane.frontier_ms > worst

    async def _look(self, lane: PartitionSearch) -> None:
        """Search the next stretch in one partition's remaining part (`PartitionSearch`). If its records cannot be read
        or decoded, note the error and stop searching this partition.
        """
        try:
            if self.is_newest:
                await self._look_back(lane)
            else:
                found = await self._searched(lane, lane.first)
                lane.first, lane.frontier_ms = found.selected.next_offset, found.begins_ms
                self._keep(lane, found.selected.records)
        except Unreadable as problem:
            self._give_up(lane, str(problem))
        except WorkProcessEnded as ended:
            self._give_up(lane, f"it was not decoded: {ended}")

    async def _look_back(self, lane: PartitionSearch) -> None:
        window = lane.window
        if window is None:
            begin = await window_before(self.client, lane.key, lane.first, lane.end)
            window = lane.window = BackwardWindow(begin, begin)
        found = await self._searched(lane, window.offset)
        if window.offset == window.begin:
            lane.frontier_ms = min(lane.frontier_ms, found.begins_ms)
        window.offset = found.selected.next_offset
        window.found = [*window.found, *found.selected.records][-self.limit :]
        if window.offset >= lane.end:
            self._keep(lane, window.found)
            lane.end, lane.window = window.begin, None

    async def _searched(self, lane: PartitionSearch, offset: int) -> SearchResult:
        """Search the stretch that begins at an offset of a lane, and return what was found. Raises `Unreadable` and
        `WorkProcessEnded`.
        """
        client, wanted = self.client, self.wanted
        for _ in range(PLANS_MAX):
            stretch = await stretch_at(client, lane.key, offset, self._size, is_committed=wanted.is_committed)
            if not stretch.size:
                return SearchResult(SelectedRecords([], lane.end, 0), NO_TIMESTAMP)
            room = self.limit if self.is_newest else self.limit - lane.found
            piece = FetchedPiece(
                lane.key[1], stretch.records, stretch.aborted, offset, lane.end, room, CHARACTERS, self.is_newest
            )
            found = await client.ports.decoder.search(piece, wanted, stretch.place, client.asker)
            if found is not None and found.selected.next_offset > offset:
                self._note_size(found.selected.size, stretch.size)
                return found
        raise Unreadable(f"what is stored from offset {offset} on cannot be read")

    def _note_size(self, size: int, of_size: int) -> None:
        """Count the bytes that were searched in one stretch of `of_size` bytes, and set the size of the next stretch,
        from `STRETCH_MIN` to `STRETCH_MAX`: twice as many, or slightly more if a part was left.
        """
        self._bytes += size
        following = size + size // 8 if size < of_size * 7 // 8 else 2 * size
        self._size = min(max(following, STRETCH_MIN), STRETCH_MAX)

    def _keep(self, lane: PartitionSearch, records: list[ShownRecord]) -> None:
        """Add matching records of a lane to the result, and keep the best `limit` records."""
        sign = -1 if self.is_newest else 1
        ranks = {(sign * each.timestamp, each.partition, sign * each.offset): each for each in records}
        lane.found += len(ranks)
        self._kept = sorted([*self._kept, *ranks])[: self.limit]
        self._new += [ranks[rank] for rank in self._kept if rank in ranks]

    def _give_up(self, lane: PartitionSearch, why: str) -> None:
        offset = lane.first if lane.window is None else lane.window.offset
        self.errors.append(f"{lane.key[0]}-{lane.key[1]}, from offset {offset} on: {why}")
        lane.end = lane.first
