"""A frame that arrives in parts: how its buffer grows, and when it is short of room."""

from __future__ import annotations

import struct
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.network.memory import BUFFER_SIZE, PARTIAL_SIZE_FIRST, SMALL_SIZE, PartialFrame, RequestMemory

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
