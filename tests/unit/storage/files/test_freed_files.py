"""The blocks of a large file are freed in another thread, where the last descriptor or the last name goes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.broker.runtime.environment import LocalEnvironment
from moldau.storage.files.local_files import FREED_SIZE_MIN, LocalFiles
from moldau.storage.files.open_files import OpenFile
from moldau.storage.log_config import LogConfig
from tests.unit.storage.stories import NOW_MS, append, open_log, read_all

LARGE, SMALL = b"x" * FREED_SIZE_MIN, b"x" * (FREED_SIZE_MIN - 1)
LARGE_BATCHES = LogConfig(max_message_bytes=2 * FREED_SIZE_MIN)


class Closes:
    """Notes which thread closes the descriptors of one file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inode = 0
        self.counts_named = True
        """Whether descriptors of a file with a name count: a later file may get the inode of a removed one."""
        self.threads: list[int] = []
        close = os.close

        def noted(descriptor: int) -> None:
            status = os.fstat(descriptor)
            if status.st_ino == self.inode and (self.counts_named or not status.st_nlink):
                self.threads.append(threading.get_ident())
            close(descriptor)

        monkeypatch.setattr(os, "close", noted)

    def of(self, path: Path, content: bytes) -> Path:
        path.write_bytes(content)
        self.inode = path.stat().st_ino
        return path


@pytest.fixture
def closes(monkeypatch: pytest.MonkeyPatch) -> Closes:
    return Closes(monkeypatch)


def on_a_loop(work: Callable[[LocalEnvironment], None]) -> int:
    """Do the work on an event loop with executor threads. Returns the thread of the loop."""

    async def main() -> int:
        environment = LocalEnvironment(asyncio.get_running_loop())
        await environment.offload(lambda: None)
        work(environment)
        environment.close()  # waits for the threads
        return threading.get_ident()

    return asyncio.run(main())


def open_unlinked(environment: LocalEnvironment, path: Path) -> OpenFile:
    opened = OpenFile(environment.fs.open(str(path)))
    path.unlink()
    return opened


def test_the_last_descriptor_of_a_large_file_without_a_name(closes: Closes, tmp_path: Path) -> None:
    path = closes.of(tmp_path / "f", LARGE)
    loop_thread = on_a_loop(lambda environment: open_unlinked(environment, path).file.close())
    assert len(closes.threads) == 1 and closes.threads != [loop_thread]


def test_a_file_that_its_last_user_drops(closes: Closes, tmp_path: Path) -> None:
    path = closes.of(tmp_path / "f", LARGE)

    def drop(environment: LocalEnvironment) -> None:
        opened = open_unlinked(environment, path)
        del opened

    loop_thread = on_a_loop(drop)
    assert len(closes.threads) == 1 and closes.threads != [loop_thread]


@pytest.mark.parametrize("keeps_name", [False, True])
def test_what_frees_little_is_closed_at_once(closes: Closes, tmp_path: Path, keeps_name: bool) -> None:
    path = closes.of(tmp_path / "f", LARGE if keeps_name else SMALL)

    def close(environment: LocalEnvironment) -> None:
        file = environment.fs.open(str(path))
        if not keeps_name:
            path.unlink()
        file.close()
        assert closes.threads == [threading.get_ident()]

    on_a_loop(close)


def test_the_last_name_of_a_large_file(closes: Closes, tmp_path: Path) -> None:
    path = closes.of(tmp_path / "f", LARGE)

    def unlink(environment: LocalEnvironment) -> None:
        environment.fs.unlink(str(path))
        assert not path.exists()

    loop_thread = on_a_loop(unlink)
    assert len(closes.threads) == 1 and closes.threads != [loop_thread]


def test_an_executor_thread_closes_by_itself(closes: Closes, tmp_path: Path) -> None:
    path = closes.of(tmp_path / "f", LARGE)
    threads: list[int] = []

    async def main() -> None:
        environment = LocalEnvironment(asyncio.get_running_loop())

        def work() -> None:
            threads.append(threading.get_ident())
            open_unlinked(environment, path).file.close()

        await environment.offload(work)
        environment.close()

    asyncio.run(main())
    assert closes.threads == threads


def test_after_the_threads_have_ended_the_loop_closes(closes: Closes, tmp_path: Path) -> None:
    path = closes.of(tmp_path / "f", LARGE)

    async def main() -> None:
        environment = LocalEnvironment(asyncio.get_running_loop())
        await environment.offload(lambda: None)
        environment.close()
        open_unlinked(environment, path).file.close()
        assert closes.threads == [threading.get_ident()]

    asyncio.run(main())


def test_a_name_goes_also_if_the_process_has_no_descriptor_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(LARGE)

    def refuse(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    on_a_loop(lambda environment: environment.fs.unlink(str(path)))
    assert not path.exists()


def test_the_end_that_a_truncation_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    ftruncate = os.ftruncate

    def noted(descriptor: int, size: int) -> None:
        if os.fstat(descriptor).st_size - size >= FREED_SIZE_MIN:
            threads.append(threading.get_ident())
        ftruncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", noted)

    async def main() -> None:
        environment = LocalEnvironment(asyncio.get_running_loop())
        log = open_log(environment.fs, str(tmp_path / "t-0"), LARGE_BATCHES)
        append(log, "small")
        append(log, "x" * FREED_SIZE_MIN)
        assert log.truncate_to(1, NOW_MS) and log.has_uncut_files
        append(log, "next")
        log.release_files()
        assert read_all(log) == {0: "small", 1: "next"} and not threads
        work = log.pending_flush()
        assert work is not None
        await environment.offload(work.sync_files)
        log.finish_flush(work, NOW_MS)
        assert len(threads) == 1 and threads != [threading.get_ident()]
        path = log.segments[0].path(".log")
        assert os.stat(path).st_size == log.segments[0].size and not log.has_uncut_files
        log.close(NOW_MS, clean=False)
        environment.close()
        again = open_log(LocalFiles(), str(tmp_path / "t-0"), LARGE_BATCHES, recovery_point=2)
        assert read_all(again) == {0: "small", 1: "next"}

    asyncio.run(main())


def test_a_segment_that_a_truncation_empties(closes: Closes, tmp_path: Path) -> None:
    def truncate(environment: LocalEnvironment) -> None:
        log = open_log(environment.fs, str(tmp_path / "t-0"), LARGE_BATCHES)
        append(log, "small")
        log.roll(NOW_MS)
        append(log, "x" * FREED_SIZE_MIN, "y")
        path = Path(log.active.path(".log"))
        closes.inode, closes.counts_named = path.stat().st_ino, False
        assert log.truncate_to(2, NOW_MS) and log.end_offset == 1
        assert path.stat().st_size == log.active.size == 0
        append(log, "next")
        assert read_all(log) == {0: "small", 1: "next"}
        log.flush(NOW_MS)
        log.close(NOW_MS, clean=False)

    loop_thread = on_a_loop(truncate)
    assert len(closes.threads) == 1 and closes.threads != [loop_thread]
    assert not list(tmp_path.glob("*/*.tmp"))
