"""The load generator against a peer that answers whatever it is asked: both its loops do the same."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bench import native_load, plain_load
from bench.frames import (
    Frames,
    ProducerIdentity,
    RotatingFrames,
    SequencedFrames,
    batch_of,
    produce_error_position,
    produce_frame,
)
from bench.outcome import LoadFailed, Outcome
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import ATTRIBUTES_POSITION, parse_header

TOPIC = "topic"
ERROR_POSITION = produce_error_position(TOPIC)
REPLY_SIZE = 300


class Peer:
    """Listens, keeps every request, and answers with a reply whose error code is set."""

    def __init__(self, error: int = 0, delay_s: float = 0.0) -> None:
        self.requests: list[bytes] = []
        self._reply = struct.pack(">i", REPLY_SIZE) + bytes(ERROR_POSITION - 4) + struct.pack(">h", error)
        self._reply += b"x" * (REPLY_SIZE + 4 - len(self._reply))
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        try:
            while True:
                accepted, _ = self._listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()
        except OSError:
            return

    def _serve(self, accepted: socket.socket) -> None:
        try:
            with accepted, accepted.makefile("rb") as stream:
                while head := stream.read(4):
                    self.requests.append(stream.read(struct.unpack(">i", head)[0]))
                    time.sleep(self._delay_s)
                    accepted.sendall(self._reply[:7])
                    accepted.sendall(self._reply[7:])
        except OSError:
            return


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def native(port: int, frames: list[Frames], **named: object) -> Outcome:
    compiled = native_load.compiled_loop()
    if compiled is None:
        pytest.skip("no C compiler")
    return native_load.run_compiled_load(compiled, [port] * len(frames), frames, **named)  # type: ignore[arg-type]


def plain(port: int, frames: list[Frames], **named: object) -> Outcome:
    return plain_load.run_plain_load([port] * len(frames), frames, **named)  # type: ignore[arg-type]


@pytest.fixture(params=[native, plain], ids=["compiled", "plain"])
def run(request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    loop: Callable[..., Outcome] = request.param
    return loop


def frames(count: int = 3) -> Frames:
    return Frames(produce_frame(TOPIC, batch_of([10], 0)), count)


def test_every_request_is_sent_and_answered(run: Callable[..., Outcome], peer: Peer) -> None:
    outcome = run(peer.port, [frames(), frames()], in_flight=3, requests=101, error_position=ERROR_POSITION)
    assert len(peer.requests) == 101 and set(peer.requests) == {produce_frame(TOPIC, batch_of([10], 0))[4:]}
    assert outcome.requests == len(outcome.latencies_ns) == 101
    assert outcome.received_size == 101 * (REPLY_SIZE + 4)
    assert outcome.sent_size == 101 * len(produce_frame(TOPIC, batch_of([10], 0)))
    assert 0 < outcome.latency_ms(0.5) <= outcome.latency_ms(0.99) < 1000 * outcome.seconds


def test_one_connection_with_one_in_flight(run: Callable[..., Outcome], peer: Peer) -> None:
    outcome = run(peer.port, [frames(1)], in_flight=1, requests=20, error_position=ERROR_POSITION)
    assert len(peer.requests) == len(outcome.latencies_ns) == 20


def test_an_idempotent_producers_requests_are_numbered_and_their_checksums_hold(
    run: Callable[..., Outcome], peer: Peer
) -> None:
    batch = batch_of([100], 0, ProducerIdentity(7, 0))
    made = SequencedFrames(produce_frame(TOPIC, batch), batch, 4)
    run(peer.port, [made], in_flight=4, requests=300, error_position=ERROR_POSITION)
    position = produce_frame(TOPIC, batch).index(batch) - 4
    batches = [request[position : position + len(batch)] for request in peer.requests]
    headers = [parse_header(each) for each in batches]
    assert [header.base_sequence for header in headers] == list(range(300))
    assert all(
        header.crc == crc32c(each[ATTRIBUTES_POSITION:], 0) for header, each in zip(headers, batches, strict=True)
    )


def test_different_requests_follow_one_another_from_where_they_begin(run: Callable[..., Outcome], peer: Peer) -> None:
    one, two, three = (struct.pack(">i", 3) + name for name in (b"one", b"two", b"six"))
    rotating = RotatingFrames([one, two, three], 1)
    run(peer.port, [rotating], in_flight=1, requests=5, error_position=ERROR_POSITION)
    assert peer.requests == [b"two", b"six", b"one", b"two", b"six"]


def test_an_error_in_a_reply_ends_the_run(run: Callable[..., Outcome]) -> None:
    peer = Peer(error=3)
    with pytest.raises(LoadFailed, match="error 3 in a reply"):
        run(peer.port, [frames()], in_flight=2, requests=10, error_position=ERROR_POSITION)
    peer.close()


def test_in_an_open_loop_a_slow_peer_does_not_slow_the_schedule(run: Callable[..., Outcome]) -> None:
    peer = Peer(delay_s=0.004)
    outcome = run(
        peer.port, [frames(64)], in_flight=1, requests=50, error_position=ERROR_POSITION, interval_ns=1_000_000
    )
    peer.close()
    # One a millisecond asked, one in four answered: the last of them has waited for all the others.
    assert outcome.latency_ms(1.0) > 50 * 3
    assert outcome.latency_ms(0.5) > 25 * 3 * 0.9


def test_in_an_open_loop_requests_leave_at_their_times(run: Callable[..., Outcome], peer: Peer) -> None:
    outcome = run(
        peer.port,
        [frames(8), frames(8)],
        in_flight=1,
        requests=40,
        error_position=ERROR_POSITION,
        interval_ns=5_000_000,
    )
    assert len(peer.requests) == 40
    assert outcome.seconds > 39 * 0.005


def test_what_is_discarded_is_counted(peer: Peer) -> None:
    outcome = native(peer.port, [frames()], in_flight=2, requests=50, error_position=ERROR_POSITION, discards=True)
    assert outcome.received_size == 50 * (REPLY_SIZE + 4)
