"""Reads the records of one partition for a page: forward from an offset, or backward from the end, as far as a budget
allows.

    offsets ──▶ Fetch, a piece of at most `PIECE_SIZE` ──▶ a process decodes, matches and shows ──▶ shown records

The worker process that decodes has limits (console/decoder.py). If it ends, the page says from which offset on nothing
is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.broker.console.decoding.selection import FetchedPiece, RecordFilter, SelectedRecords, ShownRecord
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import FetchedPartition, fetch
from moldau.broker.console.page import error_name
from moldau.broker.console.partitions import Partition
from moldau.broker.runtime.limited_work import WorkProcessEnded

PIECE_SIZE: Final = 1 << 18
WINDOW_FIRST, WINDOW_MAX = 8, 10_000
"""The number of offsets in the first window of a backward read, and the most in any window. A window is read as a
whole, so the first one is small, in case records have a megabyte.
"""


@dataclass(slots=True)
class ReadBudget:
    """The limits on what one page may still read."""

    bytes_left: int
    """The stored bytes of batches that may still be read."""
    expanded_left: int
    """The bytes of decoded records that may still be examined."""
    deadline_ms: int
    """The time on the monotonic clock at which reading stops."""


@dataclass(slots=True)
class ReadRecords:
    """The records that were read from a partition, and how far the read came."""

    records: list[ShownRecord]
    next_offset: int
    """The offset from which a forward read continues, or before which a backward read does."""
    is_end: bool
    """Whether the whole range was read."""
    error: str = ""
    left_out: bool = False
    """Whether matching records before the first one in `records` were left out."""


class RecordReader:
    """Reads records for one page, within its budget."""

    def __init__(self, client: KafkaClient, wanted: RecordFilter, budget: ReadBudget) -> None:
        self._client = client
        self._wanted = wanted
        self._budget = budget

    async def read_forward(self, key: Partition, offset: int, end: int, limit: int, characters: int) -> ReadRecords:
        """The first matching records from `offset` to `end` (exclusive): at most `limit`, with about `characters`
        characters in all.
        """
        found = ReadRecords([], offset, False)
        while found.next_offset < end and len(found.records) < limit and characters > 0:
            selected = await self._select(found, key, end, limit - len(found.records), characters, selects_newest=False)
            if selected is None:
                return found
            found.records += selected.records
            characters -= sum(each.characters for each in selected.records)
            if selected.next_offset <= found.next_offset:
                break
            found.next_offset = selected.next_offset
        found.is_end = found.next_offset >= end or (len(found.records) < limit and characters > 0)
        return found

    async def read_backward(self, key: Partition, first: int, end: int, limit: int, characters: int) -> ReadRecords:
        """The last matching records from `first` to `end` (exclusive), in the order of their offsets: at most `limit`,
        with about `characters` characters in all. They are searched backward, in windows that grow.
        """
        found = ReadRecords([], end, False)
        size = min(limit, WINDOW_FIRST)
        while found.next_offset > first and len(found.records) < limit and characters > 0:
            low = max(first, found.next_offset - size)
            window = await self._window(key, low, found.next_offset, limit - len(found.records), characters)
            if window.error or not window.is_end:
                found.error = window.error
                return found
            found.records = window.records + found.records
            characters -= sum(each.characters for each in window.records)
            found.next_offset = window.records[0].offset if window.left_out else low
            size = min(size * 4, WINDOW_MAX)
        found.is_end = found.next_offset <= first
        return found

    async def _window(self, key: Partition, low: int, end: int, limit: int, characters: int) -> ReadRecords:
        """The last matching records from `low` to `end` (exclusive): at most `limit`, with about `characters`
        characters in all.
        """
        found = ReadRecords([], low, False)
        while found.next_offset < end:
            selected = await self._select(found, key, end, limit, characters, selects_newest=True)
            if selected is None:
                return found
            records = found.records + selected.records if not selected.left_out else selected.records
            found.left_out |= selected.left_out > 0
            kept = _last(records, limit, characters)
            found.left_out |= len(kept) < len(records)
            found.records = kept
            if selected.next_offset <= found.next_offset:
                break
            found.next_offset = selected.next_offset
        found.is_end = True
        return found

    async def _select(
        self, found: ReadRecords, key: Partition, end: int, limit: int, characters: int, *, selects_newest: bool
    ) -> SelectedRecords | None:
        """Fetch the next piece of a partition, and select the matching records in it. Returns None if the read cannot
        continue: `found.error` has the reason, or is empty if the budget is used up.
        """
        budget = self._budget
        now_ms = self._client.ports.environment.monotonic_ms()
        if budget.bytes_left <= 0 or budget.expanded_left <= 0 or now_ms > budget.deadline_ms:
            return None
        fetched = await fetch(self._client, key, found.next_offset, PIECE_SIZE, int(self._wanted.is_committed))
        if fetched is None:
            found.error = "the leader does not answer"
            return None
        if fetched.error:
            found.error = error_name(fetched.error)
            return None
        if not fetched.records:
            return SelectedRecords([], found.next_offset, 0)
        budget.bytes_left -= len(fetched.records)
        piece = piece_of(key, fetched, found.next_offset, end, limit, characters, selects_newest=selects_newest)
        try:
            selected = await self._client.ports.decoder.select(piece, self._wanted, self._client.asker)
        except WorkProcessEnded as ended:
            found.error = not_decoded(found.next_offset, ended)
            return None
        budget.expanded_left -= selected.expanded
        return selected


def piece_of(
    key: Partition,
    fetched: FetchedPartition,
    offset: int,
    end: int,
    limit: int,
    characters: int,
    *,
    selects_newest: bool,
) -> FetchedPiece:
    """Make a piece, for the worker process, of the batches that were fetched from a partition."""
    return FetchedPiece(key[1], fetched.records, tuple(fetched.aborted), offset, end, limit, characters, selects_newest)


def not_decoded(offset: int, ended: WorkProcessEnded) -> str:
    """The message of a page if the worker process has ended before it decoded the records from `offset` on."""
    return f"what is stored from offset {offset} on was not decoded: {ended}"


def _last(records: list[ShownRecord], limit: int, characters: int) -> list[ShownRecord]:
    """The last records: at most `limit`, with about `characters` characters in all, but at least one if there is
    one.
    """
    first = len(records)
    while first and len(records) - first < limit and characters > 0:
        first -= 1
        characters -= records[first].characters
    return records[first:]
