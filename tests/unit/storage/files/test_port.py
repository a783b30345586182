"""What every implementation of the file port does: the machine's disk, and files in memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.memory_files import MemoryFiles
from moldau.storage.files.port import File, FileSystem, write_atomically

NOW_MS = 1_700_000_000_123


@pytest.fixture(params=["disk", "memory"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return LocalFiles() if request.param == "disk" else MemoryFiles(lambda: NOW_MS)


@pytest.fixture
def root(fs: FileSystem, tmp_path: Path) -> str:
    fs.make_directories(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def file(fs: FileSystem, root: str) -> Iterator[File]:
    file = fs.open(f"{root}/log", create=True)
    yield file
    file.close()


def test_append_returns_the_position_of_its_first_byte(file: File) -> None:
    assert file.append([b"abc", bytearray(b"de"), memoryview(b"f")]) == 0
    assert file.append([b"gh"]) == 6
    assert file.append([]) == 8
    assert file.size() == 8
    assert file.pread(100, 0) == b"abcdefgh"


def test_pread_ends_at_the_end(file: File) -> None:
    file.append([b"0123456789"])
    assert file.pread(4, 3) == b"3456"
    assert file.pread(4, 8) == b"89"
    assert file.pread(4, 10) == b""


def test_cached_read_answers_what_was_just_written(file: File) -> None:
    file.append([b"0123456789"])
    assert file.pread_cached(4, 3) == b"3456"
    assert file.pread_cached(4, 8) == b"89"
    assert file.pread_cached(4, 10) == b""


def test_pwrite_overwrites_in_place_and_may_extend(file: File) -> None:
    file.append([b"0123456789"])
    file.pwrite(b"abc", 2)
    assert file.pread(99, 0) == b"01abc56789"
    file.pwrite(b"xyz", 9)
    assert file.size() == 12
    assert file.pread(99, 8) == b"8xyz"


def test_truncate_cuts_and_appends_go_on_there(file: File) -> None:
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.size() == 4
    assert file.append([b"ab"]) == 4
    file.sync()
    assert file.pread(99, 0) == b"0123ab"


def test_open_finds_the_size_and_close_may_repeat(fs: FileSystem, root: str) -> None:
    path = f"{root}/log"
    with pytest.raises(FileNotFoundError):
        fs.open(path)
    first = fs.open(path, create=True)
    first.append([b"abc"])
    first.close()
    first.close()
    again = fs.open(path, read_only=True)
    assert again.size() == 3
    with pytest.raises(OSError):
        again.append([b"d"])
    again.close()
    assert fs.read(path) == b"abc"


def test_directories(fs: FileSystem, root: str) -> None:
    data = f"{root}/data"
    fs.make_directories(f"{data}/topic-0/deep")
    fs.make_directories(f"{data}/topic-0/deep")
    fs.open(f"{data}/topic-0/deep/b", create=True).close()
    fs.open(f"{data}/topic-0/deep/a", create=True).close()
    assert fs.list_directory(f"{data}/topic-0/deep") == ["a", "b"]
    assert fs.is_directory(f"{data}/topic-0")
    assert not fs.is_directory(f"{data}/topic-0/deep/a")
    fs.rename(f"{data}/topic-0", f"{data}/topic-0-delete")
    fs.sync_directory(data)
    assert fs.list_directory(data) == ["topic-0-delete"]
    fs.unlink(f"{data}/topic-0-delete/deep/a")
    assert not fs.exists(f"{data}/topic-0-delete/deep/a")
    fs.remove_tree(f"{data}/topic-0-delete")
    assert fs.list_directory(data) == []


def test_write_atomically_replaces_and_clears_a_leftover(fs: FileSystem, root: str) -> None:
    path = f"{root}/checkpoint"
    leftover = fs.open(f"{path}.tmp", create=True)
    leftover.append([b"a long leftover of a crash"])
    leftover.close()
    write_atomically(fs, path, b"one")
    write_atomically(fs, path, memoryview(b"two"))
    assert fs.read(path) == b"two"
    assert fs.list_directory(root) == ["checkpoint"]


def test_a_truncation_may_extend_with_zeros(file: File) -> None:
    file.append([b"ab"])
    file.truncate(5)
    assert file.pread(99, 0) == b"ab\0\0\0"


def test_what_was_read_does_not_change_when_the_file_grows(file: File) -> None:
    file.append([b"0123"])
    read = file.pread_cached(4, 0)
    file.append([b"4567"])
    assert read == b"0123"


def test_a_holder_of_an_unlinked_file_reads_on(fs: FileSystem, root: str) -> None:
    path = f"{root}/segment"
    file = fs.open(path, create=True)
    file.append([b"abc"])
    fs.unlink(path)
    fs.open(path, create=True).close()
    assert (file.pread(9, 0), fs.read(path)) == (b"abc", b"")
    file.close()


def test_names_that_are_missing_or_taken(fs: FileSystem, root: str) -> None:
    fs.make_directories(f"{root}/full/inner")
    fs.open(f"{root}/file", create=True).close()
    for call in (fs.file_size, fs.stamp, fs.list_directory, fs.read, fs.unlink, fs.remove_tree, fs.modified_ms):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/missing", f"{root}/other")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/missing/file", create=True)
    with pytest.raises(FileExistsError):
        fs.make_directories(f"{root}/file")
    fs.make_directories(f"{root}/moved")
    with pytest.raises(OSError) as refused:
        fs.rename(f"{root}/moved", f"{root}/full")
    assert refused.value.errno == errno.ENOTEMPTY


def test_a_stamp_tells_a_file_from_the_one_that_took_its_name(fs: FileSystem, root: str) -> None:
    write_atomically(fs, f"{root}/a", b"abc")
    before = fs.stamp(f"{root}/a")
    fs.rename(f"{root}/a", f"{root}/b")
    write_atomically(fs, f"{root}/a", b"abc")
    assert fs.stamp(f"{root}/b") == before
    assert fs.stamp(f"{root}/a").inode != before.inode


def test_a_lock_excludes_its_own_process(fs: FileSystem, root: str) -> None:
    lock = fs.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    fs.lock(f"{root}/.lock").release()


def test_there_is_room(fs: FileSystem, file: File, root: str) -> None:
    file.append([b"abc"])
    total, usable = fs.disk_usage(root)
    assert 0 < usable <= total
