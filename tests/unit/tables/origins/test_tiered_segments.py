"""A slice of an object as a file: the bytes of the object, whatever the buffers in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from itertools import pairwise
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.tiered.port import ObjectNotFound
from moldau.tables.decoding.segment_batches import stored_batches
from moldau.tables.origins import tiered_segments
from moldau.tables.origins.blocking_storage import BlockingStorage
from moldau.tables.origins.port import FileInPieces, Slice, StoredSegment
from moldau.tables.origins.tiered_segments import SegmentRequests, TieredFile, TieredSegments
from moldau.tables.refusals import DataLost, SegmentReplaced
from tests.support.segments import mixed_batches

KEY = "t-0/00000000000000000000.log"
OBJECT = bytes(Random(1).randbytes(5_000))


class Pieces:
    """The part of a `BlockingStorage` that a file uses: each answer in buffers of random sizes."""

    def __init__(self, data: bytes, seed: int) -> None:
        self._data = data
        self._random = Random(seed)
        self.asked: list[tuple[int, int]] = []
        self.futures: list[Future[Sequence[bytes]]] = []
        self.error: Exception | None = None
        self.answers = True

    def start_get(self, key: str, position: int, size: int) -> Future[Sequence[bytes]]:
        assert key == KEY
        self.asked.append((position, size))
        future: Future[Sequence[bytes]] = Future()
        self.futures.append(future)
        if self.error is not None:
            future.set_exception(self.error)
        elif self.answers:
            answer = self._data[position : position + size]
            cuts = sorted(self._random.sample(range(len(answer) + 1), min(3, len(answer))))
            edges = [0, *cuts, len(answer)]
            future.set_result([answer[start:end] for start, end in pairwise(edges)])
        return future


def slice_of(data: bytes, start: int = 0) -> Slice:
    segment = StoredSegment(0, 1_000, len(data), KEY, is_growing=False)
    return Slice("t", 0, cast("TieredSegments", None), segment, start, len(data), None, 0, 1_000)


def file_of(pieces: Pieces, wanted: Slice) -> TieredFile:
    return TieredFile(requests_of(pieces), wanted)


def requests_of(pieces: Pieces) -> SegmentRequests:
    return SegmentRequests(cast("BlockingStorage", pieces))


@pytest.fixture(autouse=True)
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered_segments, "REQUEST_SIZE", 700)
    monkeypatch.setattr(tiered_segments, "REQUESTS_AHEAD", 3)


@given(st.integers(0, 99), st.lists(st.tuples(st.integers(0, 5_500), st.integers(1, 2_000)), max_size=20))
def test_any_read_returns_the_bytes_of_the_object(seed: int, reads: list[tuple[int, int]]) -> None:
    file = file_of(Pieces(OBJECT, seed), slice_of(OBJECT))
    for position, size in reads:
        assert bytes(file.pread(size, position)) == OBJECT[position : position + size]


@given(st.integers(0, 99))
def test_what_is_left_of_a_piece_is_read_without_a_copy(seed: int) -> None:
    file = file_of(Pieces(OBJECT, seed), slice_of(OBJECT))
    assert isinstance(file, FileInPieces)
    position = 0
    while rest := file.rest_of_piece(position):
        piece = file.pread(rest, position)
        assert isinstance(piece, memoryview)
        assert piece == OBJECT[position : position + rest]
        position += rest
    assert position == len(OBJECT)


@given(st.integers(0, 99))
def test_batches_that_lie_in_two_pieces_are_found(seed: int) -> None:
    batches = mixed_batches(40, 3)
    data = b"".join(batches)
    wanted = slice_of(data)
    found = list(stored_batches(file_of(Pieces(data, seed), wanted), wanted))
    assert [bytes(piece[inside : inside + header.size]) for _, header, piece, inside in found] == batches
    assert [position for position, *_ in found] == [sum(map(len, batches[:number])) for number in range(40)]


def test_requests_are_ahead_of_the_reader_and_each_byte_is_requested_once() -> None:
    pieces = Pieces(OBJECT, 1)
    file = file_of(pieces, slice_of(OBJECT, 100))
    assert bytes(file.pread(10, 100)) == OBJECT[100:110]
    assert pieces.asked == [(100, 700), (800, 700), (1_500, 700)]
    assert bytes(file.pread(4_890, 110)) == OBJECT[110:]
    assert pieces.asked == [(start, min(700, 5_000 - start)) for start in range(100, 5_000, 700)]


def test_a_file_that_is_closed_drops_its_requests() -> None:
    pieces = Pieces(OBJECT, 1)
    file = file_of(pieces, slice_of(OBJECT))
    file.pread(10, 0)
    pieces.answers = False
    file.pread(10, 700)
    file.close()
    assert [future.cancelled() for future in pieces.futures] == [False, False, False, True]


def test_a_slice_is_requested_before_it_is_opened_and_each_byte_once() -> None:
    pieces = Pieces(OBJECT, 1)
    requests, wanted = requests_of(pieces), slice_of(OBJECT, 100)
    assert requests.begin(wanted, must=False) and requests.begin(wanted, must=True)
    assert pieces.asked == [(100, 700), (800, 700), (1_500, 700)]
    assert bytes(TieredFile(requests, wanted).pread(4_900, 100)) == OBJECT[100:]
    assert pieces.asked == [(start, min(700, 5_000 - start)) for start in range(100, 5_000, 700)]


def test_no_more_is_requested_ahead_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered_segments, "BEGUN_MAX", 4)
    pieces = Pieces(OBJECT, 1)
    pieces.answers = False
    requests = requests_of(pieces)
    slices = [slice_of(OBJECT[: 1_500 + 700 * number]) for number in range(4)]
    assert [requests.begin(each, must=False) for each in slices] == [True, True, False, False]
    assert requests.begin(slices[2], must=True)

    for future in pieces.futures:
        future.set_result([])
    assert not requests.begin(slices[3], must=False), "the answers are still held"
    for each in slices[:3]:
        requests.drop(each)
    assert requests.begin(slices[3], must=False)


def test_what_no_task_opens_is_cancelled() -> None:
    pieces = Pieces(OBJECT, 1)
    pieces.answers = False
    requests, wanted = requests_of(pieces), slice_of(OBJECT)
    requests.begin(wanted, must=False)
    requests.drop(wanted)
    assert [future.cancelled() for future in pieces.futures] == [True, True, True]
    requests.begin(wanted, must=False)
    TieredFile(requests, wanted).close()
    assert all(future.cancelled() for future in pieces.futures)


def test_an_object_that_is_gone_or_short_is_told() -> None:
    pieces = Pieces(OBJECT, 1)
    pieces.error = ObjectNotFound(KEY)
    with pytest.raises(DataLost, match="was deleted after the read was planned"):
        file_of(pieces, slice_of(OBJECT)).pread(10, 0)
    short = Pieces(OBJECT[:300], 1)
    with pytest.raises(SegmentReplaced, match="fewer bytes than its manifest says"):
        file_of(short, slice_of(OBJECT)).rest_of_piece(0)
