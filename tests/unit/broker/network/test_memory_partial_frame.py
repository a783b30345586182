"""A frame that arrives in parts: how its buffer grows, and when it is short of room."""

from __future__ import annotations

import struct
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.network.memory import (
    BUFFER_SIZE,
    PARTIAL_SIZE_FIRST,
    SIZE_MAX_DEFAULT,
    SMALL_SIZE,
    PartialFrame,
    RequestMemory,
)

LOOP = cast("Any", SimpleNamespace(call_soon=lambda call: None, call_later=lambda delay_s, call: None))
LARGE = BUFFER_SIZE * 2


def partial(frame_size: int, received: bytes, memory: RequestMemory | None = None) -> PartialFrame:
    data = (struct.pack(">i", frame_size) + received)[: 4 + len(received)]
    return PartialFrame(memory or RequestMemory(None, LOOP), cast("Any", object()), memoryview(data), 1 << 30)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_size_that_has_not_arrived_wants_four_bytes(size: int) -> None:
    frame = PartialFrame(RequestMemory(None, LOOP), cast("Any", object()), memoryview(bytes(size)), 100)
    assert (frame.size, frame.wanted, len(frame.buffer)) == (size, 4, 4)


def test_a_small_frame_gets_all_its_room_at_once_and_keeps_what_came() -> None:
    frame = partial(SMALL_SIZE - 4, b"begun", RequestMemory(1, LOOP))
    assert len(frame.buffer) == frame.wanted == SMALL_SIZE and not frame.is_short
    assert bytes(frame.buffer[4:9]) == b"begun"


def test_a_large_frame_grows_with_what_arrives() -> None:
    frame = partial(LARGE, b"begun")
    sizes = []
    while len(frame.buffer) < frame.wanted:
        sizes.append(len(frame.buffer))
        frame.size = len(frame.buffer)
        frame.ask_for_room()
    assert sizes[0] == 9 + PARTIAL_SIZE_FIRST
    assert all(later <= 2 * earlier for earlier, later in pairwise(sizes[1:]))
    assert len(frame.buffer) == 4 + LARGE and bytes(frame.buffer[4:9]) == b"begun"


def test_a_frame_above_the_limit_wants_no_more_than_its_size() -> None:
    data = struct.pack(">i", 101)
    frame = PartialFrame(RequestMemory(None, LOOP), cast("Any", object()), memoryview(data), 100)
    assert (frame.wanted, len(frame.buffer)) == (4, 4)


def test_a_frame_without_room_is_short_until_some_is_granted() -> None:
    memory = RequestMemory(10, LOOP)
    first = partial(LARGE, b"favoured", memory)
    frame = partial(LARGE, b"begun", memory)
    assert not first.is_short and frame.is_short and len(frame.buffer) == 9
    frame.grow(1000)
    assert not frame.is_short and len(frame.buffer) == 1009 and bytes(frame.buffer[4:9]) == b"begun"


def test_frames_that_are_whole_are_kept_as_they_are() -> None:
    frame = partial(3, b"abcdefgh")
    assert frame.size == len(frame.buffer) == 12 and frame.wanted == 7


class Sender:
    """A connection whose frame arrives; it notes the room that it is granted."""

    is_held = False
    received_bytes = 0

    def __init__(self) -> None:
        self.granted: list[int] = []
        self.frame: PartialFrame | None = None

    def begin(self, frame_size: int, arrived: int, memory: RequestMemory) -> PartialFrame:
        data = struct.pack(">i", frame_size) + bytes(arrived)
        self.frame = PartialFrame(memory, cast("Any", self), memoryview(data), 1 << 30)
        return self.frame

    def room_granted(self, size: int) -> None:
        self.granted.append(size)
        assert self.frame is not None
        self.frame.grow(size)


def arrive(frame: PartialFrame) -> None:
    """The rest of a frame arrives as fast as there is room."""
    while len(frame.buffer) < frame.wanted:
        frame.size = len(frame.buffer)
        frame.ask_for_room()
        assert not frame.is_short


def test_frames_of_usual_sizes_have_room_however_many_announce_more() -> None:
    memory = RequestMemory(SIZE_MAX_DEFAULT, LOOP)
    frames = [Sender().begin(100 << 20, 70_000, memory) for _ in range(2_000)]
    assert sum(frame.is_short for frame in frames) > 500
    assert memory.used_size < SIZE_MAX_DEFAULT * 3 // 4 + 2_000 * 70_004
    memory = RequestMemory(SIZE_MAX_DEFAULT, LOOP)
    frames = [Sender().begin(100 << 20, 20_000, memory) for _ in range(5_000)]
    assert any(frame.is_short for frame in frames)
    for _ in range(10):
        honest = Sender().begin(900_000, 10_000, memory)
        assert not honest.is_short
        arrive(honest)


def test_room_goes_to_the_oldest_and_to_the_frame_that_lacks_least_in_turn() -> None:
    calls: list[Any] = []
    memory = RequestMemory(
        1, cast("Any", SimpleNamespace(call_soon=calls.append, call_later=lambda delay_s, call: None))
    )
    favoured = Sender()
    favoured.begin(1 << 20, 0, memory)
    sizes = [1_000_000, 900_000, 800_000, 700_000, 600_000]
    senders = {size: Sender() for size in sizes}
    for size, each in senders.items():
        assert each.begin(size, 0, memory).is_short
    served = []
    last = favoured
    for _ in sizes:
        memory.release(cast("Any", last))
        calls.pop()()
        (size,) = [size for size in sizes if senders[size].granted and size not in served]
        served.append(size)
        last = senders[size]
    assert served == [1_000_000, 600_000, 900_000, 700_000, 800_000]
