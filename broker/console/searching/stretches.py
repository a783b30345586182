"""Finds stretches of a partition's log for a search: a place in a file of this broker, or bytes fetched from another
leader.

    offset ──▶ this broker leads and has it in its files ──▶ place, which the process that searches reads itself
          └──▶ another leader, or remote storage ──▶ Fetch ──▶ bytes

A place has at most about `STRETCH_MAX` bytes. The event loop only looks the place up; the worker process reads it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import fetch
from moldau.broker.console.page import error_name
from moldau.broker.console.partitions import Partition
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.primitives import BytesLike
from moldau.replication.source import HIGH_WATERMARK, TXN_COMMITTED, LocalLogSource, LocatedBatches, PageCacheMiss
from moldau.storage.files.file_slice import FileSlice, NotCached
from moldau.storage.files.log_paths import LOG_SUFFIX
from moldau.storage.log.log import Log

if TYPE_CHECKING:
    from moldau.broker.console.decoding.work import FilePlace
    from moldau.replication.partition import Partition as Replica

STRETCH_MAX: Final = 1 << 24
FETCHED_SIZE: Final = 1 << 20
FETCHED_OFFSETS: Final = 4_000
"""The number of offsets in a window of a search for the newest records, if another broker leads the partition."""
LOOKS_MAX: Final = 16
"""The most times that a lookup is repeated because the index was not in the page cache."""
LOCAL: Final = LocalLogSource()
_base_offset = attrgetter("base_offset")
T = TypeVar("T")


class Stretch(NamedTuple):
    """Consecutive batches of a log, which begin at the batch with a given offset. The last one may be cut short."""

    size: int
    """The bytes of the batches; 0 if the log has nothing at or after the offset."""
    place: FilePlace | None
    """The place of the batches in a file; None if they are in `records`."""
    records: BytesLike
    aborted: Sequence[AbortedTransaction]


class Unreadable(Exception):
    """Raised if the records of a partition cannot be read. The message says why."""


def own_replica(client: KafkaClient, key: Partition) -> Replica | None:
    """The replica of a partition, if this broker leads it and another process can open its files; otherwise None."""
    if not client.ports.environment.has_files_on_disk():
        return None
    partition = client.ports.services.replicas.find(key)
    return None if partition is None or partition.leadership is None else partition


async def stretch_at(client: KafkaClient, key: Partition, offset: int, size: int, *, is_committed: bool) -> Stretch:
    """The stretch of a log that begins at `offset`, of at most about `size` bytes. Raises `Unreadable`."""
    replica = own_replica(client, key)
    if replica is not None:
        isolation = TXN_COMMITTED if is_committed else HIGH_WATERMARK
        for _ in range(LOOKS_MAX):
            found = LOCAL.find_batches(replica, offset, size, isolation, at_least_one=True, waits=False)
            if not isinstance(found, PageCacheMiss):
                break
            await client.ports.offload(found.place.warm)
        if isinstance(found, LocatedBatches) and found.slice is not None:
            return Stretch(found.size, _place(replica.log, offset, found.slice), b"", found.aborted_transactions or ())
    fetched = await fetch(client, key, offset, FETCHED_SIZE, int(is_committed))
    if fetched is None:
        raise Unreadable("the leader does not answer")
    if fetched.error:
        raise Unreadable(error_name(fetched.error))
    return Stretch(len(fetched.records), None, bytes(fetched.records), fetched.aborted)


def _place(log: Log, offset: int, found: FileSlice) -> FilePlace:
    """The place in a file of the bytes of `found`, which were read at `offset`, in its segment or a later one."""
    from moldau.broker.console.decoding.work import FilePlace

    slot = max(0, bisect_right(log.segments, offset, key=_base_offset) - 1)
    path = next(each.path(LOG_SUFFIX) for each in log.segments[slot:] if each.open_file() is found.open_file)
    return FilePlace(path, log.fs.stamp(path).inode, found.position, found.size)


async def window_before(client: KafkaClient, key: Partition, first: int, end: int) -> int:
    """The first offset of the window that ends at `end` (exclusive), but not below `first`. The window has about as
    many bytes as one stretch. Raises `Unreadable`.
    """
    replica = own_replica(client, key)
    if replica is None or not replica.log.segments or end <= replica.log.segments[0].base_offset:
        return max(first, end - FETCHED_OFFSETS)
    return max(first, await _looked_up(client, lambda: _begin_of_place(replica.log, end)))


def _begin_of_place(log: Log, end: int) -> int:
    """The offset of a batch about `STRETCH_MAX` bytes before `end`, in the same segment. Raises `NotCached`."""
    segment = log.segments[max(0, bisect_right(log.segments, end - 1, key=_base_offset) - 1)]
    _, position = segment.offset_index.entry_at_or_before(end - 1, waits=False)
    if position <= STRETCH_MAX:
        return segment.base_offset
    last_offset = segment.offset_index.offset_after(position - STRETCH_MAX, waits=False)
    return segment.base_offset if last_offset is None else min(last_offset + 1, end - 1)


async def _looked_up(client: KafkaClient, look_up: Callable[[], T]) -> T:
    """Return the result of a lookup in an index. If the page cache lacks a part of the index, an executor thread reads
    the part, and the lookup is repeated. Raises `Unreadable`.
    """
    for _ in range(LOOKS_MAX):
        try:
            return look_up()
        except NotCached as missing:
            await client.ports.offload(missing.place.warm)
        except OSError as error:
            raise Unreadable(f"the index cannot be read: {error.strerror}") from None
    raise Unreadable("the page cache has no room for the index")
