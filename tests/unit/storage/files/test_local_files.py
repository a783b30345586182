"""The machine's disk keeps the promises of the file port."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from moldau.protocol.primitives import BytesLike
from moldau.storage.files import local_files
from moldau.storage.files.local_files import BUFFERS_PER_CALL_MAX, LocalFile, LocalFiles
from moldau.storage.files.port import File, FileSystem


@pytest.fixture
def fs() -> FileSystem:
    return LocalFiles()


@pytest.fixture
def file(fs: FileSystem, tmp_path: Path) -> Iterator[File]:
    file = fs.open(f"{tmp_path}/log", create=True)
    yield file
    file.close()


def test_new_files_are_for_the_owner_and_its_group_and_credentials_for_the_owner(
    fs: FileSystem, tmp_path: Path
) -> None:
    def mode(path: str) -> int:
        return (tmp_path / path).stat().st_mode & 0o777

    before = os.umask(0o022)
    try:
        for directory in ("data/topic-0", "data/__cluster_metadata-0"):
            fs.make_directories(f"{tmp_path}/{directory}")
        fs.make_directories(f"{tmp_path}/data/topic-0")
        names = ("topic-0/0.log", "bootstrap.checkpoint.part", "__cluster_metadata-0/0.log", "meta.properties")
        for name in names:
            fs.open(f"{tmp_path}/data/{name}", create=True).close()
        fs.lock(f"{tmp_path}/data/.lock").release()
    finally:
        os.umask(before)
    assert [mode(f"data/{name}") for name in names] == [0o640, 0o600, 0o600, 0o640]
    assert [mode(f"data/{name}") for name in ("", "topic-0", "__cluster_metadata-0")] == [0o750, 0o750, 0o700]
    assert mode("data/.lock") == 0o640
    with pytest.raises(FileExistsError):
        fs.make_directories(f"{tmp_path}/data/meta.properties")


def test_append_takes_more_buffers_than_one_system_call(file: File) -> None:
    file.append([b"head"])
    buffers = [b"%05d" % number for number in range(3 * BUFFERS_PER_CALL_MAX + 7)]
    assert file.append(buffers) == 4
    assert file.pread(file.size(), 4) == b"".join(buffers)


def test_append_goes_on_after_short_writes(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev

    def at_most_three(descriptor: int, buffers: Sequence[BytesLike], position: int) -> int:
        return whole(descriptor, [b"".join(buffers)[:3]], position)

    monkeypatch.setattr(os, "pwritev", at_most_three)
    file.append([b"", b"abcd", b"", b"efghij", b"k"])
    assert file.append([b"lmno"]) == 11
    assert file.pread(99, 0) == b"abcdefghijklmno"


def test_failed_append_leaves_the_file_as_it_was(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    file.append([b"kept"])
    whole = os.pwritev

    def full_after_two_bytes(descriptor: int, buffers: Sequence[BytesLike], position: int) -> int:
        if position > 4:
            raise OSError(errno.ENOSPC, "no space")
        return whole(descriptor, [b"".join(buffers)[:2]], position)

    monkeypatch.setattr(os, "pwritev", full_after_two_bytes)
    with pytest.raises(OSError) as failure:
        file.append([b"lost", b"too"])
    assert failure.value.errno == errno.ENOSPC
    descriptor = file.fileno()
    assert descriptor is not None
    assert file.size() == 4 == os.fstat(descriptor).st_size
    monkeypatch.undo()
    assert file.append([b"next"]) == 4


def test_cached_read_says_none_where_the_kernel_would_block(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    file.append([b"0123456789"])

    def would_block(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        raise BlockingIOError(errno.EAGAIN, "not cached")

    monkeypatch.setattr(os, "preadv", would_block)
    assert file.pread_cached(4, 3) is None

    def only_two(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        return 2

    monkeypatch.setattr(os, "preadv", only_two)
    assert file.pread_cached(4, 3) is None


def test_cached_read_is_a_plain_read_where_the_volume_knows_no_nowait(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append([b"0123456789"])
    calls = 0

    def unsupported(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        nonlocal calls
        calls += 1
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.pread_cached(4, 3) == b"3456"
    assert file.pread_cached(4, 0) == b"0123"
    assert calls == 1


def test_a_write_back_leaves_the_bytes_as_they_are(file: File) -> None:
    file.append([b"one", b"two"])
    file.begin_write_back(3, 0)
    file.begin_write_back(1 << 20, 3)
    file.append([b"three"])
    assert file.pread(100, 0) == b"onetwothree"


def test_evicted_pages_are_read_from_the_disk(file: File) -> None:
    file.append([b"0123456789"])
    file.sync()
    file.evict()
    assert file.pread_cached(4, 3) in (None, b"3456")
    assert file.pread(4, 3) == b"3456"


@pytest.mark.parametrize("refused", [0, errno.ENOTSUP, errno.EIO])
def test_a_sync_empties_the_cache_of_the_drive_if_the_system_has_a_command_for_it(
    refused: int, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has the command, and its Python has no fdatasync."""
    calls: list[str] = []

    def full_sync(_: int, command: int) -> int:
        calls.append(f"fcntl {command}")
        if refused:
            raise OSError(refused, os.strerror(refused))
        return 0

    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(local_files, "_FULL_SYNC", 51)
    if refused == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.sync()
    else:
        file.sync()
    assert calls == ["fcntl 51", "fsync"] if refused == errno.ENOTSUP else ["fcntl 51"]


def test_lock_excludes_this_process_and_another(fs: FileSystem, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    lock = fs.lock(path)
    with pytest.raises(BlockingIOError):
        fs.lock(path)
    attempt = [
        sys.executable,
        "-c",
        "import sys; from moldau.storage.files.local_files import LocalFiles; LocalFiles().lock(sys.argv[1])",
    ]
    root = Path(__file__).parents[4]
    refused = subprocess.run([*attempt, path], cwd=root, capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    lock.release()
    lock.release()
    assert subprocess.run([*attempt, path], cwd=root, check=False).returncode == 0
    fs.lock(path).release()


def test_volume_and_times(fs: FileSystem, tmp_path: Path) -> None:
    path = f"{tmp_path}/log"
    file = fs.open(path, create=True)
    file.append([b"abc"])
    file.close()
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    assert fs.modified_ms(path) == 1_700_000_000_123
    assert fs.file_size(path) == 3
    total, usable = fs.disk_usage(path)
    assert 0 < usable <= total


def test_a_file_of_the_machine_has_a_descriptor_for_sendfile(file: File) -> None:
    assert isinstance(file, LocalFile)
    assert isinstance(file.fileno(), int)


def test_bytes_in_the_page_cache_are_found_there_and_holes_are_noticed(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append([bytes(1 << 20)])
    assert file.is_cached(1 << 20, 0) and file.is_cached(1, 0) and file.is_cached(10, 1 << 20)
    whole = os.preadv

    def with_a_hole(descriptor: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        if 300_000 <= position < 500_000:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        return whole(descriptor, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", with_a_hole)
    assert not file.is_cached(1 << 20, 0)
    assert file.is_cached(250_000, 0) and file.is_cached(1 << 18, 600_000)
    assert not file.is_cached(200_001, 100_000), "the last byte is looked at"


def test_what_was_evicted_is_brought_back(file: LocalFile) -> None:
    file.append([bytes(1 << 20)])
    file.sync()
    file.evict()
    file.warm(2 << 20, 1)
    assert file.is_cached((1 << 20) - 1, 1)


def test_a_file_is_sent_from_any_position_as_far_as_the_socket_takes_it(file: File) -> None:
    file.append([b"0123456789"])
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.setblocking(False)
        assert file.send(sender.fileno(), 4, 3) == 4
        assert receiver.recv(100) == b"3456"
        assert file.send(sender.fileno(), 4, 10) == 0, "at the end there is nothing"
        with pytest.raises(BlockingIOError):
            while True:
                assert file.send(sender.fileno(), 10, 0) > 0
