"""The thread that sends parts of files, over real sockets, in Python and in C."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.modules_in_c import forms_of, plain_form

MODULE = "broker.runtime.file_sender"
FILE_SIZE = 4 << 20
SMALL = 1 << 16
"""Of the buffers of both sockets."""
PATIENCE_S = 20.0


def content(position: int, size: int) -> bytes:
    """What the file holds there: no two places of it look alike."""
    first, last = position // 8, (position + size + 7) // 8
    return b"".join(struct.pack(">Q", place) for place in range(first, last))[position % 8 :][:size]


class Subject:
    """The thread, an open file, and pairs of connected sockets."""

    def __init__(self, form: ModuleType, path: Path) -> None:
        self.form = form
        self.path = path
        self.file = os.open(path, os.O_RDWR)
        self.sender = form.FileSender(SMALL)
        self.listening = socket.socket()
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen(200)
        self.ended: dict[Any, tuple[int, int]] = {}

    def pair(self) -> tuple[int, socket.socket]:
        """The descriptor for the thread, and the client."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.settimeout(PATIENCE_S)
        client.connect(self.listening.getsockname())
        accepted, _ = self.listening.accept()
        accepted.setblocking(False)
        return accepted.detach(), client

    def part(self, position: int, size: int) -> tuple[object, int, int, int]:
        return (None, self.file, position, size)

    def send(self, owner: object, to: int, *parts: tuple[object, int, int, int]) -> None:
        self.sender.send(owner, to, list(parts))

    def result(self, owner: object) -> tuple[int, int]:
        """The bytes that left and the status, as soon as the job has ended."""
        while owner not in self.ended:
            readable, _, _ = select.select([self.sender.fileno()], [], [], PATIENCE_S)
            assert readable, "nothing has ended"
            self.take()
        return self.ended.pop(owner)

    def take(self) -> None:
        for ended, sent, status in self.sender.ended():
            assert ended not in self.ended
            self.ended[ended] = (sent, status)

    def close(self) -> None:
        self.sender.stop()
        self.listening.close()
        os.close(self.file)


def own_bytes(data: bytes) -> tuple[object, int, int, int]:
    return (data, -1, 0, 0)


@pytest.fixture
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    path = tmp_path / "0.log"
    path.write_bytes(content(0, FILE_SIZE))
    made = Subject(request.param, path)
    yield made
    made.close()


def each_form(test: Any) -> Any:
    ids = ["python" if form is plain_form(MODULE) else "c" for form in forms_of(MODULE)]
    return pytest.mark.parametrize("subject", forms_of(MODULE), ids=ids, indirect=True)(test)


def received(client: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = client.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@each_form
def test_bytes_and_parts_of_files_leave_in_order(subject: Subject) -> None:
    to, client = subject.pair()
    subject.send("a", to, own_bytes(b"head"), subject.part(5, 300_000), own_bytes(b"between"), subject.part(7, 1))
    expected = b"head" + content(5, 300_000) + b"between" + content(7, 1)
    assert received(client, len(expected)) == expected
    assert subject.result("a") == (len(expected), 0)
    subject.send("b", to, subject.part(1, SMALL), own_bytes(b"tail"))
    assert received(client, SMALL + 4) == content(1, SMALL) + b"tail"
    assert subject.result("b") == (SMALL + 4, 0)
    subject.sender.release(to)
    assert client.recv(1) == b""


@each_form
def test_a_reader_that_takes_nothing_costs_no_time_and_delays_no_other(subject: Subject) -> None:
    slow, slow_client = subject.pair()
    subject.send("slow", slow, subject.part(0, FILE_SIZE))
    for turn in range(20):
        to, client = subject.pair()
        subject.send(turn, to, subject.part(turn, 500_000))
        assert received(client, 500_000) == content(turn, 500_000)
        assert subject.result(turn) == (500_000, 0)
        subject.sender.release(to)
    assert "slow" not in subject.ended
    before = os.times()
    assert not select.select([subject.sender.fileno()], [], [], 0.3)[0]
    after = os.times()
    assert after.user + after.system - before.user - before.system < 0.25
    assert received(slow_client, FILE_SIZE) == content(0, FILE_SIZE)
    assert subject.result("slow") == (FILE_SIZE, 0)


@each_form
def test_a_released_socket_ends_its_job_and_is_closed_by_the_thread(subject: Subject) -> None:
    to, client = subject.pair()
    subject.send("a", to, subject.part(0, FILE_SIZE))
    assert received(client, 1000) == content(0, 1000)
    subject.sender.release(to)
    sent, status = subject.result("a")
    assert status == errno.ECANCELED and 1000 <= sent < FILE_SIZE
    assert received(client, sent - 1000) == content(1000, sent - 1000)
    assert client.recv(1) == b""
    with pytest.raises(OSError):
        os.fstat(to)


@each_form
def test_a_number_that_stands_for_another_connection_is_watched_anew(subject: Subject) -> None:
    """The transport keeps another descriptor of the same socket, so that closing alone leaves it in the epoll."""
    numbers = set()
    for turn in range(5):
        to, client = subject.pair()
        kept = os.dup(to)
        numbers.add(to)
        subject.send(turn, to, subject.part(turn, FILE_SIZE // 2))
        assert received(client, FILE_SIZE // 2) == content(turn, FILE_SIZE // 2)
        assert subject.result(turn) == (FILE_SIZE // 2, 0)
        subject.sender.release(to)
        os.close(kept)
        assert client.recv(1) == b""
    assert len(numbers) < 5


@each_form
def test_a_peer_that_resets_ends_the_job_with_its_error(subject: Subject) -> None:
    to, client = subject.pair()
    subject.send("a", to, subject.part(0, FILE_SIZE))
    received(client, 1000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    assert subject.result("a")[1] in (errno.ECONNRESET, errno.EPIPE)
    subject.sender.release(to)


@each_form
def test_a_file_that_became_shorter_ends_the_job(subject: Subject) -> None:
    to, client = subject.pair()
    subject.send("a", to, subject.part(0, FILE_SIZE))
    received(client, 1000)
    os.truncate(subject.path, 2 << 20)
    assert received(client, (2 << 20) - 1000) == content(1000, (2 << 20) - 1000)
    assert subject.result("a") == (2 << 20, subject.form.SHORT)
    subject.sender.release(to)


@each_form
def test_a_descriptor_that_is_no_socket_or_no_file_ends_the_job(subject: Subject) -> None:
    to, _ = subject.pair()
    subject.send("a", to, (None, 1 << 20, 0, 10))
    assert subject.result("a") == (0, errno.EBADF)
    subject.sender.release(to)
    subject.send("b", to, subject.part(0, 10))
    assert subject.result("b") == (0, errno.EBADF)


@each_form
def test_what_is_sent_is_kept_until_its_job_is_taken(subject: Subject) -> None:
    class Kept:
        def __del__(self) -> None:
            gone.append(self)

    gone: list[object] = []
    to, client = subject.pair()
    subject.send("a", to, (Kept(), subject.file, 0, FILE_SIZE))

    received(client, FILE_SIZE)
    select.select([subject.sender.fileno()], [], [], PATIENCE_S)
    assert not gone
    subject.result("a")
    assert len(gone) == 1
    subject.sender.release(to)


@each_form
def test_a_stop_ends_all_jobs_and_more_is_refused(subject: Subject) -> None:
    pairs = [subject.pair() for _ in range(3)]
    for index, (to, _) in enumerate(pairs):
        subject.send(index, to, subject.part(0, FILE_SIZE))
    subject.sender.stop()
    subject.sender.stop()
    subject.take()
    assert {owner: status for owner, (_, status) in subject.ended.items()} == dict.fromkeys(range(3), errno.ECANCELED)
    with pytest.raises(RuntimeError):
        subject.send("late", pairs[0][0], subject.part(0, 10))
    for to, client in pairs:
        subject.sender.release(to)
        while client.recv(1 << 16):
            pass


@each_form
def test_wrong_parts_are_refused_and_leave_nothing(subject: Subject) -> None:
    to, _ = subject.pair()
    for wrong in ("text", None, 5):
        with pytest.raises((TypeError, BufferError)):
            subject.send("a", to, own_bytes(b"head"), own_bytes(wrong))  # type: ignore[arg-type]
    os.close(to)


@each_form
@pytest.mark.parametrize("seed", range(2))
def test_every_byte_arrives_whoever_else_leaves(subject: Subject, seed: int) -> None:
    """Many connections, whose clients read at their own pace, or leave; and sockets that are released at any time."""
    draw = random.Random(seed)
    failures: list[str] = []
    running: list[threading.Thread] = []
    live: dict[int, tuple[int, str, list[int]]] = {}
    for number in range(24):
        to, client = subject.pair()
        fate = draw.choice(["reads", "reads", "leaves", "released"])
        positions = [draw.randrange(FILE_SIZE - 200_000) for _ in range(draw.randrange(1, 4))]
        live[number] = (to, fate, positions)
        reader = threading.Thread(target=_reads, args=(client, fate, positions, draw.random() / 2000, failures))
        running.append(reader)
        reader.start()
    kept = dict.fromkeys(live, 0)
    for number, (to, _, positions) in live.items():
        _send_next(subject, number, to, positions[0])
    while live:
        select.select([subject.sender.fileno()], [], [], 0.001)
        subject.take()
        for number, (_, status) in tuple(subject.ended.items()):
            del subject.ended[number]
            to, fate, positions = live[number]
            kept[number] += 1
            if status:
                assert fate == "leaves", errno.errorcode.get(status, status)
            if status or kept[number] == len(positions):
                del live[number]
                subject.sender.release(to)
            else:
                _send_next(subject, number, to, positions[kept[number]])
        for number, (to, fate, _) in tuple(live.items()):
            if fate == "released" and draw.random() < 0.05:
                del live[number]
                subject.sender.release(to)
                assert subject.result(number)[1] in (0, errno.ECANCELED)
    for reader in running:
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
    assert not failures


def _send_next(subject: Subject, owner: int, to: int, position: int) -> None:
    head = struct.pack(">Q", position)
    subject.send(owner, to, own_bytes(head), subject.part(position, 200_000), own_bytes(head[::-1]))


def _reads(client: socket.socket, fate: str, positions: list[int], pause_s: float, failures: list[str]) -> None:
    """What a client receives is a beginning of what was sent; all of it if neither side leaves."""
    heads = [struct.pack(">Q", position) for position in positions]
    expected = b"".join(
        head + content(position, 200_000) + head[::-1] for head, position in zip(heads, positions, strict=True)
    )
    wanted = len(expected) if fate != "leaves" else len(expected) // 2
    got = bytearray()
    while len(got) < wanted and (part := client.recv(min(1 << 16, wanted - len(got)))):
        got += part
        time.sleep(pause_s)
    if got != expected[: len(got)]:
        failures.append(f"{fate}: bytes differ")
    if fate == "reads" and len(got) < wanted:
        failures.append(f"only {len(got)} of {wanted} bytes")
    client.close()
