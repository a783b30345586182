"""Opens a segment of a tiered storage in a task. The next bytes are requested while the task decodes, and the first
bytes of the following slices before a task opens them.

    slices of a read   | being decoded |  requested ahead  |   not requested yet
    requests           ===done===under way===begun==========|

At most `BEGUN_MAX` requests are begun for slices that are not opened yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import lru_cache
from threading import Lock
from typing import Final, NamedTuple

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.port import ObjectNotFound
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.origins.blocking_storage import STORAGES_MAX, BlockingStorage, storage_at
from moldau.tables.origins.port import SegmentFile, Slice
from moldau.tables.refusals import DataLost, SegmentReplaced

REQUEST_SIZE: Final = 8 << 20
"""The bytes of one request. Larger requests cost client and storage less CPU, and a task more memory."""
REQUESTS_AHEAD: Final = 4
"""The most requests that are under way or whose bytes are not read yet. Their bytes are the memory that a task needs
for an object, besides what it decodes."""
BEGUN_MAX: Final = 8
"""The most requests for slices that no task has opened. A further one is begun only while fewer than this number are
under way. A storage that answers after 20 ms, with 100 MB/s for each connection, needs eight to keep a task busy. A
storage that is near is as fast with two."""


class TieredSegments(NamedTuple):
    """The `SegmentSource` that opens segments of a tiered storage."""

    address: StoreAddress

    def open(self, wanted: Slice) -> SegmentFile:
        return TieredFile(requests_to(self.address), wanted)

    def request_ahead(self, wanted: Slice, *, must: bool) -> bool:
        return requests_to(self.address).begin(wanted, must=must)

    def drop_ahead(self, wanted: Slice) -> None:
        requests_to(self.address).drop(wanted)


class ObjectRange(NamedTuple):
    """The bytes [start, end) of an object."""

    key: str
    start: int
    end: int


class SegmentRequests:
    """The requests to one storage for bytes of segments. Threads may share it."""

    def __init__(self, storage: BlockingStorage) -> None:
        self._storage = storage
        self._lock = Lock()
        self._begun: dict[ObjectRange, Future[Sequence[BytesLike]]] = {}
        """The requests for slices that no task has opened."""
        self._under_way = 0

    def begin(self, wanted: Slice, *, must: bool) -> bool:
        """Begin the first requests of a slice. Parameters and result: see `RemoteSegmentSource.request_ahead`."""
        with self._lock:
            if not must and max(self._under_way, len(self._begun)) >= BEGUN_MAX:
                return False
        for each in first_ranges(wanted):
            with self._lock:
                is_begun = each in self._begun
            if not is_begun:
                begun = self._send(each)
                with self._lock:
                    self._begun[each] = begun
        return True

    def drop(self, wanted: Slice) -> None:
        """Cancel the requests that `begin` has begun for a slice and that no task has taken."""
        for each in first_ranges(wanted):
            with self._lock:
                begun = self._begun.pop(each, None)
            if begun is not None:
                begun.cancel()

    def answer(self, wanted: ObjectRange) -> Future[Sequence[BytesLike]]:
        """Return the future of the request for these bytes: of the request that `begin` has begun, or of a new one."""
        with self._lock:
            begun = self._begun.pop(wanted, None)
        return self._send(wanted) if begun is None else begun

    def _send(self, wanted: ObjectRange) -> Future[Sequence[BytesLike]]:
        with self._lock:
            self._under_way += 1
        answer = self._storage.start_get(wanted.key, wanted.start, wanted.end - wanted.start)
        answer.add_done_callback(self._note_done)
        return answer

    def _note_done(self, answer: Future[Sequence[BytesLike]]) -> None:
        with self._lock:
            self._under_way -= 1


def first_ranges(wanted: Slice) -> list[ObjectRange]:
    """The ranges of the requests with which the read of a slice begins."""
    limit = min(wanted.end_position, wanted.start_position + REQUESTS_AHEAD * REQUEST_SIZE)
    starts = range(wanted.start_position, limit, REQUEST_SIZE)
    key, end = wanted.segment.name, wanted.end_position
    return [ObjectRange(key, start, min(start + REQUEST_SIZE, end)) for start in starts]


@lru_cache(maxsize=STORAGES_MAX)
def requests_to(address: StoreAddress) -> SegmentRequests:
    """Return the object that sends the requests to the storage at an address. All tasks of a process share it. Raises
    `InvalidStorageUrl`."""
    return SegmentRequests(storage_at(address))


class _Request(NamedTuple):
    start: int
    end: int
    answer: Future[Sequence[BytesLike]]


class _Piece(NamedTuple):
    start: int
    end: int
    data: memoryview


class TieredFile:
    """A slice of a .log object as a `FileInPieces`, which is read from its beginning to its end.

    Objects are never changed, so the object under the segment's key has the segment's bytes.
    """

    def __init__(self, to_storage: SegmentRequests, wanted: Slice) -> None:
        self._to_storage = to_storage
        self._wanted = wanted
        self._end = wanted.end_position
        self._pieces: deque[_Piece] = deque()
        """The received bytes that are not read yet. The bytes of `_requests` follow them."""
        self._requests: deque[_Request] = deque()

    def size(self) -> int:
        return self._wanted.segment.size

    def rest_of_piece(self, position: int) -> int:
        """The number of bytes from `position` to the end of the received piece that contains it. Raises what `pread`
        raises."""
        if position >= self._end:
            return 0
        self._receive(position, position + 1)
        return self._pieces[0].end - position

    def pread(self, size: int, position: int) -> BytesLike:
        """Read up to `size` bytes from `position` on; fewer only at the end of the slice. Raises `DataLost`,
        `SegmentReplaced` if the object is shorter than its manifest said, and `RemoteStorageError`."""
        end = min(position + size, self._end)
        if position >= end:
            return b""
        self._receive(position, end)
        parts = [
            piece.data[max(0, position - piece.start) : end - piece.start]
            for piece in self._pieces
            if piece.start < end
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._to_storage.drop(self._wanted)
        self._drop_held()

    def _drop_held(self) -> None:
        for request in self._requests:
            request.answer.cancel()
        self._requests.clear()
        self._pieces.clear()

    def _receive(self, position: int, end: int) -> None:
        """Drop the bytes before `position`, request those that follow it, and wait for the bytes before `end`."""
        self._drop_before(position)
        self._request(position, end)
        while not self._pieces or self._pieces[-1].end < end:
            self._take(self._requests.popleft())
            self._drop_before(position)

    def _drop_before(self, position: int) -> None:
        while self._pieces and self._pieces[0].end <= position:
            self._pieces.popleft()
        while not self._pieces and self._requests and self._requests[0].end <= position:
            self._requests.popleft().answer.cancel()
        held: Sequence[_Piece | _Request] = self._pieces or self._requests
        if held and held[0].start > position:
            self._drop_held()

    def _request(self, position: int, end: int) -> None:
        held: Sequence[_Piece | _Request] = self._requests or self._pieces
        at = held[-1].end if held else position
        limit = min(self._end, max(end, position + REQUESTS_AHEAD * REQUEST_SIZE))
        while at < limit:
            following = min(at + REQUEST_SIZE, self._end)
            answer = self._to_storage.answer(ObjectRange(self._wanted.segment.name, at, following))
            self._requests.append(_Request(at, following, answer))
            at = following

    def _take(self, request: _Request) -> None:
        try:
            parts = request.answer.result()
        except ObjectNotFound:
            raise DataLost(f"{self._wanted}: {self._wanted.path} was deleted after the read was planned") from None
        at = request.start
        for part in parts:
            self._pieces.append(_Piece(at, at + len(part), memoryview(part)))
            at += len(part)
        if at != request.end:
            raise SegmentReplaced(f"{self._wanted}: {self._wanted.path} has fewer bytes than its manifest says")
