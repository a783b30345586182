"""Reads the records of planned fetches: at once if the page cache has them, otherwise in an executor thread.

sent from its file   32 KiB and more, if the connection supports it: only the page cache is checked
copied               all other records
checked              first records that a client requests twice in a row, because it may have found them damaged
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.broker.apis.forwarding import close_on_failure
from moldau.broker.apis.services import Services
from moldau.broker.network.replies import SLICE_SIZE_MIN
from moldau.broker.network.route import ClientConnection
from moldau.broker.runtime.pending import DISK, Pending, Reply
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.schema import FetchedRecords
from moldau.replication.fetch_plan import PlannedRead, set_partition_error
from moldau.storage.files.file_slice import FileSlice
from moldau.storage.log.damaged_log import damage_of
from moldau.storage.segment.batch_scan import damage_in

log = logging.getLogger("moldau.fetch")

SERVED_MAX: Final = 10_000
"""The most partitions whose last fetch offset is kept for a connection. If there are more, all are dropped."""


def sends_from_file(connection: ClientConnection, place: FileSlice) -> bool:
    """Whether records are sent from their file, without being copied into the reply."""
    return place.size >= SLICE_SIZE_MIN and place.file.fileno() is not None and connection.sends_files()


def read_records(
    services: Services, connection: ClientConnection, reads: list[PlannedRead], respond: Callable[[], FetchResponse]
) -> Reply[FetchResponse]:
    """Read the records of planned reads; a read that fails gets an error. Then `respond` makes the response."""
    cold: list[PlannedRead] = []
    suspects: list[PlannedRead] = []
    # Entries are kept: a follower that refused a batch fetches other partitions before it fetches that one again.
    served = connection.served
    if len(served) > SERVED_MAX:
        served.clear()
    for read in reads:
        place = read.place
        if place is None:
            continue
        before, offset = served.get(read.key), read.fetch_offset
        served[read.key] = ~offset if before in (offset, ~offset) else offset
        if before == offset:
            suspects.append(read)
            continue
        try:
            records = _cached(connection, place)
        except OSError as error:
            _unreadable(read, error)
            continue
        if records is None:
            cold.append(read)
        else:
            read.data.records = records
    if cold or suspects:
        return _read_on_executor(services, connection, reads, cold, suspects, respond)
    return respond()


def _cached(connection: ClientConnection, place: FileSlice) -> FetchedRecords | None:
    """The records at a place of a file, for the reply; None if the page cache lacks some of them. Raises OSError."""
    if sends_from_file(connection, place):
        return place if place.file.is_cached(place.size, place.position) else None
    return place.file.pread_cached(place.size, place.position)


def _read_on_executor(
    services: Services,
    connection: ClientConnection,
    reads: list[PlannedRead],
    cold: list[PlannedRead],
    suspects: list[PlannedRead],
    respond: Callable[[], FetchResponse],
) -> Pending[FetchResponse]:
    reply: Pending[FetchResponse] = Pending(waits_for=DISK)
    memory, offload = services.reply_memory, services.environment.offload
    places = [read.place for read in reads if read.place is not None]
    borrowed_size = sum(place.size for place in places if not sends_from_file(connection, place))
    memory.borrow(borrowed_size)

    async def read_all() -> None:
        try:
            for read, is_suspect in (*((each, True) for each in suspects), *((each, False) for each in cold)):
                try:
                    read.data.records, damage = await offload(_reading(connection, read, is_suspect))
                except OSError as error:
                    _unreadable(read, error)
                else:
                    if damage is not None:
                        _damaged(read, damage)
        finally:
            memory.give_back(borrowed_size)
        reply.complete(respond())

    services.spawn(close_on_failure(connection, read_all()))
    return reply


def _reading(
    connection: ClientConnection, read: PlannedRead, is_suspect: bool
) -> Callable[[], tuple[FetchedRecords, str | None]]:
    """Make a function that reads the records of a planned read in an executor thread. It returns the records, and a
    text about damage that it found, or None. It raises OSError."""
    place = read.place
    assert place is not None
    is_sent_from_file = sends_from_file(connection, place)

    def work() -> tuple[FetchedRecords, str | None]:
        if is_sent_from_file:
            if is_suspect:
                return place, damage_of(place)
            place.warm()
            return place, None
        records = place.read()
        return records, damage_in(records) if is_suspect else None

    return work


def _damaged(read: PlannedRead, damage: str) -> None:
    """Handle a damaged batch. It is not sent, so that the client does not fail on it again. The log is marked as
    damaged, so that another replica becomes the leader."""
    assert read.partition is not None and read.place is not None
    read.partition.log.mark_damaged(f"{damage}, at or after position {read.place.position} of a segment")
    read.data.records = b""
    set_partition_error(read.data, ErrorCode.KAFKA_STORAGE_ERROR)


def _unreadable(read: PlannedRead, error: OSError) -> None:
    """Answer for a partition whose read failed, because of the disk or because it was deleted. Other partitions of the
    request are not affected."""
    assert read.partition is not None
    log.error("%s-%d cannot be read for a fetch: %s", read.partition.topic, read.partition.index, error)
    read.partition.log.fail_unless_transient(error)
    set_partition_error(read.data, ErrorCode.KAFKA_STORAGE_ERROR)
