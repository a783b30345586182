"""Fetches the records of partitions from their leaders."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.client import EARLIEST, Client
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of

if TYPE_CHECKING:
    from moldau.broker.cli.daily.client import Partition

VERSION: Final = 12
"""The highest version of Fetch that names topics by their names, not by their ids."""
PIECE_SIZE: Final = 1 << 20
TOGETHER: Final = 16
"""The most partitions whose first records are fetched by one request."""


def fetch(
    client: Client,
    leader: int,
    positions: Mapping[Partition, int],
    *,
    wait_ms: int = 0,
    size_max: int = PIECE_SIZE,
    is_committed: bool = False,
) -> dict[Partition, PartitionData]:
    """Fetch partitions from one broker, each from its offset in `positions` on: about `size_max` bytes of each
    partition at most. If the broker throttles the client, it waits as long as the broker says, and fetches again. The
    caller must check the error code of each partition. Raises `TransientError` and `Failure`.
    """
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size_max)
        topics.setdefault(topic, []).append(wanted)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=max(size_max * len(positions), 1),
        isolation_level=int(is_committed),
        topics=[FetchTopic(topic=name, partitions=each) for name, each in topics.items()],
    )
    while True:
        reply = client.ask_broker(leader, request, FetchResponse, version=VERSION, wait_ms=wait_ms)
        client.check(reply.error_code, None, "the fetch")
        if reply.responses or not reply.throttle_time_ms:
            break
        time.sleep(reply.throttle_time_ms / 1000)  # A throttled client gets a response without partitions (KIP-219).
    return {(topic.topic, each.partition_index): each for topic in reply.responses for each in topic.partitions}


def fetch_from_leaders(
    client: Client, positions: Mapping[Partition, int], *, wait_ms: int = 0, is_committed: bool = False
) -> dict[Partition, PartitionData]:
    """Fetch partitions from their leaders, as `fetch` does. It is the attempt of a `Client.retry`, and each one asks
    the leaders of its time.
    """
    found: dict[Partition, PartitionData] = {}
    for leader, keys in client.grouped_by_leader(positions).items():
        part = {key: positions[key] for key in keys}
        found |= fetch(client, leader, part, wait_ms=wait_ms, is_committed=is_committed)
    return found


def records_from(fetched: PartitionData, offset: int, *, is_committed: bool = False) -> Iterator[Record]:
    """The records of a fetched partition from `offset` on, without control records. If `is_committed`, those of aborted
    transactions are left out. Raises `MalformedMessage`.
    """
    from moldau.tables.origins.broker_batches import without_aborted

    data = bytes_of(fetched)
    aborted = (fetched.aborted_transactions or ()) if is_committed else ()
    for position, header in without_aborted(list(iterate_batches(data)), aborted):
        if header.is_control or header.last_offset < offset:
            continue
        for record in records_of(data, position, header):
            if record.offset >= offset:
                yield record


def bytes_of(fetched: PartitionData) -> bytes:
    """The record batches of a fetched partition, as bytes."""
    records = fetched.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b""


def first_timestamps(client: Client, positions: Mapping[Partition, int]) -> dict[Partition, int]:
    """The timestamp (ms) of the first record at or after each position. A partition is left out if it has no such
    record, or if the user may not read it. Raises `Failure`.
    """
    found: dict[Partition, int] = {}
    for keys in client.retry("the leaders", lambda: client.grouped_by_leader(positions)).values():
        left = {key: positions[key] for key in keys}
        count = TOGETHER
        while left:
            part = dict(islice(left.items(), count))
            fetched = client.retry("fetch", partial(fetch_from_leaders, client, part))
            moved = 0
            for key, offset in part.items():
                is_outside = fetched[key].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                if is_outside and (start := client.offsets({key: EARLIEST})[key]) > offset:
                    left[key], moved = start, moved + 1
                    continue
                first, following = _first_record(fetched[key], offset)
                if first is not None:
                    found[key] = first.timestamp
                if first is not None or following is None:
                    del left[key]
                moved += key not in left or following != offset
                if key in left and following is not None:
                    left[key] = following
            if not moved and count == 1:
                del left[next(iter(part))]  # A fetch of one partition has a whole batch, or there is none.
            count = TOGETHER if moved else 1
    return found


def _first_record(fetched: PartitionData, offset: int) -> tuple[Record | None, int | None]:
    """The first record of a fetched partition at or after `offset`, and the offset of the next fetch. The record is
    None if none was fetched. The offset is None if the partition has no further records.
    """
    if fetched.error_code:
        return None, None
    first = next(records_from(fetched, offset), None)
    batches = list(iterate_batches(bytes_of(fetched)))
    following = batches[-1][1].last_offset + 1 if batches else offset
    return first, following if following < fetched.high_watermark else None
