"""The loads of closed loops: their encoded requests, connections and requests in flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.client import Client
from bench.frames import (
    Frames,
    RotatingFrames,
    SequencedFrames,
    batch_for_frame_size,
    batch_of,
    fetch_error_position,
    fetch_frame,
    produce_error_position,
    produce_frame,
)
from moldau.protocol.record_batch import parse_header

FETCH_SIZE: Final = 1 << 20
FILL_SIZE: Final = 256 << 20
FILL_FRAME_SIZE: Final = 256 << 10
SEQUENCED_RECORD_SIZE: Final = 100


class Workload(NamedTuple):
    """A load. `frames` makes the requests of all connections when the topic exists."""

    name: str
    frames: Callable[[Client, str], list[Frames]]
    error_position: Callable[[str], int]
    in_flight: int
    requests: int
    requests_quick: int
    request_size: int = 200
    is_counted_in_mb: bool = False
    is_fetch: bool = False
    discards: bool = False
    """Whether the kernel drops a reply once its head is read, so that only the broker's own work is measured."""

    def log_size(self, requests: int) -> int:
        """The approximate size (bytes) of what a run leaves in the log."""
        return FILL_SIZE if self.is_fetch else requests * self.request_size


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _idempotent(connections: int, in_flight: int) -> Callable[[Client, str], list[Frames]]:
    def frames(client: Client, topic: str) -> list[Frames]:
        made: list[Frames] = []
        for _ in range(connections):
            batch = batch_of([SEQUENCED_RECORD_SIZE], _now_ms(), client.new_producer())
            made.append(SequencedFrames(produce_frame(topic, batch), batch, in_flight))
        return made

    return frames


def _plain(size: int, connections: int, in_flight: int) -> Callable[[Client, str], list[Frames]]:
    def frames(_: Client, topic: str) -> list[Frames]:
        frame = produce_frame(topic, batch_for_frame_size(topic, size, _now_ms()))
        return [Frames(frame, in_flight) for _ in range(connections)]

    return frames


def _fetches(connections: int, batch_size: int = FILL_FRAME_SIZE) -> Callable[[Client, str], list[Frames]]:
    """Fill the topic, and return the fetches that read it piece by piece. Each connection begins at another offset."""

    def frames(client: Client, topic: str) -> list[Frames]:
        batch = batch_for_frame_size(topic, batch_size, _now_ms())
        count = parse_header(batch).records_count
        frame = produce_frame(topic, batch)
        for _ in range(FILL_SIZE // batch_size):
            client.exchange(frame)
        step = count * FETCH_SIZE // batch_size
        pieces = FILL_SIZE // FETCH_SIZE - 1
        fetches = [fetch_frame(topic, 1 + piece * step, FETCH_SIZE) for piece in range(pieces)]
        return [RotatingFrames(fetches, index * pieces // connections) for index in range(connections)]

    return frames


HOT_PATH: Final = Workload(
    "hot path: idempotent, one record of 100 B, 4 connections x 5 in flight",
    _idempotent(4, 5),
    produce_error_position,
    in_flight=5,
    requests=600_000,
    requests_quick=100_000,
)

SMALL: Final = Workload(
    "produce 200 B, 4 connections x 5 in flight",
    _plain(200, 4, 5),
    produce_error_position,
    in_flight=5,
    requests=300_000,
    requests_quick=60_000,
)

LOADS: Final = (
    SMALL,
    Workload(
        "produce 200 B, one in flight",
        _plain(200, 1, 1),
        produce_error_position,
        in_flight=1,
        requests=50_000,
        requests_quick=10_000,
    ),
    Workload(
        "produce 16 KiB, acks=all, 4 x 5",
        _plain(16 << 10, 4, 5),
        produce_error_position,
        in_flight=5,
        requests=60_000,
        requests_quick=15_000,
        request_size=16 << 10,
        is_counted_in_mb=True,
    ),
    Workload(
        "produce 256 KiB, 4 x 5",
        _plain(256 << 10, 4, 5),
        produce_error_position,
        in_flight=5,
        requests=6_000,
        requests_quick=2_000,
        request_size=256 << 10,
        is_counted_in_mb=True,
    ),
    Workload(
        "fetch 1 MiB from page cache, 4 connections",
        _fetches(4),
        fetch_error_position,
        in_flight=1,
        requests=8_000,
        requests_quick=2_000,
        is_counted_in_mb=True,
        is_fetch=True,
    ),
    Workload(
        "fetch 1 MiB from page cache, 1 connection",
        _fetches(1),
        fetch_error_position,
        in_flight=1,
        requests=8_000,
        requests_quick=2_000,
        is_counted_in_mb=True,
        is_fetch=True,
    ),
    Workload(
        "fetch 1 MiB of 64 KiB batches, 4 connections x 5 in flight",
        _fetches(4, 64 << 10),
        fetch_error_position,
        in_flight=5,
        requests=8_000,
        requests_quick=2_000,
        is_counted_in_mb=True,
        is_fetch=True,
    ),
    Workload(
        "fetch 1 MiB from page cache, 4 connections, discarded in the client's kernel",
        _fetches(4),
        fetch_error_position,
        in_flight=1,
        requests=8_000,
        requests_quick=2_000,
        is_counted_in_mb=True,
        is_fetch=True,
        discards=True,
    ),
)
