"""Group commit: one sync at a time, for all who appended before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Tasks
from moldau.storage.files.open_files import OpenFile
from moldau.storage.files.port import File
from moldau.storage.log.log import Log
from moldau.testing.simulation.world import World


class Work:
    is_postponed = False

    def __init__(self, log: FakeLog) -> None:
        self.log = log

    def sync_files(self) -> None:
        if self.log.error is not None:
            raise self.log.error


class FakeLog:
    """Counts its flushes; may fail one, may have nothing to flush."""

    directory = "/data/t-0"

    def __init__(self) -> None:
        self.is_dirty = True
        self.error: OSError | None = None
        self.failure: OSError | None = None
        self.flushes = 0

    def pending_flush(self) -> Work | None:
        return Work(self) if self.is_dirty and self.failure is None else None

    def finish_flush(self, work: Work, now_ms: int) -> None:
        self.flushes += 1

    def fail_flush(self, error: OSError) -> None:
        self.failure = error


class Disk:
    """An environment whose every sync takes a second."""

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    async def offload(self, work: Callable[[], None]) -> None:
        await asyncio.sleep(1)
        work()


class Bench:
    def __init__(self) -> None:
        self.tasks = Tasks(lambda reason: None)
        self.flusher = Flusher(cast("Environment", Disk()), self.tasks.spawn)
        self.done: list[str] = []

    def wait_for(self, name: str, *logs: FakeLog) -> None:
        self.flusher.call_when_durable([cast("Log", log) for log in logs], lambda: self.done.append(name))


def live(story: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(Bench())

    with World(1) as world:
        world.run(run(), limit_s=100)


def test_newcomers_wait_for_the_sync_after_the_one_under_way() -> None:
    async def story(bench: Bench) -> None:
        log = FakeLog()
        bench.wait_for("first", log)
        await asyncio.sleep(0.5)
        for name in ("second", "third"):
            bench.wait_for(name, log)
        await asyncio.sleep(1)
        assert bench.done == ["first"]
        await asyncio.sleep(1)
        assert bench.done == ["first", "second", "third"] and log.flushes == 2
        bench.wait_for("fourth", log)
        await asyncio.sleep(1.1)
        assert bench.done[-1] == "fourth" and log.flushes == 3

    live(story)


def test_several_logs_are_waited_for_together_also_one_of_them_twice() -> None:
    async def story(bench: Bench) -> None:
        one, other, clean = FakeLog(), FakeLog(), FakeLog()
        clean.is_dirty = False
        bench.wait_for("all", one, other, clean, one)
        await asyncio.sleep(1.1)
        assert bench.done == ["all"] and (one.flushes, other.flushes, clean.flushes) == (1, 1, 0)

    live(story)


def test_after_a_failed_sync_all_are_let_go_and_nothing_is_synced_again() -> None:
    async def story(bench: Bench) -> None:
        log = FakeLog()
        log.error = OSError("EIO")
        bench.wait_for("first", log)
        await asyncio.sleep(0.5)
        bench.wait_for("second", log)
        await asyncio.sleep(3)
        assert bench.done == ["first", "second"] and log.failure is not None, "they look at the failure themselves"
        log.error = None
        bench.wait_for("third", log)
        await asyncio.sleep(3)
        assert bench.done[-1] == "third" and log.flushes == 0, "what failed once is never believed again"

    live(story)


def test_a_log_that_is_deleted_lets_those_who_wait_go_and_is_not_synced_again() -> None:
    async def story(bench: Bench) -> None:
        log = FakeLog()
        bench.wait_for("first", log)
        await asyncio.sleep(0.5)
        bench.wait_for("second", log)
        bench.flusher.forget_log(cast("Log", log))
        log.error = OSError("ENOENT")
        assert bench.done == ["second"]
        await asyncio.sleep(3)
        assert bench.done == ["second", "first"] and log.flushes == 0
        bench.flusher.forget_log(cast("Log", FakeLog()))

    live(story)


class FakeFile:
    def __init__(self, error: OSError | None = None) -> None:
        self.syncs = 0
        self.error = error

    def sync(self) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        pass


class Written(FakeLog):
    """A log with an active segment."""

    def __init__(self, error: OSError | None = None) -> None:
        super().__init__()
        self.file = FakeFile(error)
        self.active = self

    def begin_write_back(self) -> OpenFile:
        return OpenFile(cast("File", self.file))

    def fail_log(self, error: OSError) -> None:
        self.failure = error


def test_logs_are_written_back_one_after_the_other_and_once_for_all_that_was_asked_meanwhile() -> None:
    async def story(bench: Bench) -> None:
        logs = [Written() for _ in range(3)]
        for _ in range(5):
            for log in logs:
                bench.flusher.write_back(cast("Log", log))
        await asyncio.sleep(1.5)
        assert [log.file.syncs for log in logs] == [1, 0, 0]
        bench.flusher.write_back(cast("Log", logs[0]))
        await asyncio.sleep(10)
        assert [log.file.syncs for log in logs] == [2, 1, 1]
        bench.flusher.write_back(cast("Log", logs[2]))
        await asyncio.sleep(2)
        assert logs[2].file.syncs == 2 and bench.flusher.write_back_count == 5

    live(story)


def test_a_failed_write_back_is_a_failed_flush_unless_the_log_was_deleted_meanwhile() -> None:
    async def story(bench: Bench) -> None:
        bad, deleted, good = Written(OSError(5, "bad")), Written(OSError(5, "bad")), Written()
        for log in (bad, deleted, good):
            bench.flusher.write_back(cast("Log", log))
        await asyncio.sleep(1.5)
        assert bad.failure is bad.file.error
        bench.flusher.forget_log(cast("Log", deleted))
        await asyncio.sleep(5)
        assert deleted.failure is None and good.file.syncs == 1

    live(story)


def test_what_was_not_begun_is_not_written_back_once_the_log_is_deleted() -> None:
    async def story(bench: Bench) -> None:
        first, deleted = Written(), Written()
        bench.flusher.write_back(cast("Log", first))
        bench.flusher.write_back(cast("Log", deleted))
        bench.flusher.forget_log(cast("Log", deleted))
        await asyncio.sleep(5)
        assert (first.file.syncs, deleted.file.syncs) == (1, 0)

    live(story)


def test_whoever_closes_a_log_waits_for_what_is_being_synced() -> None:
    async def story(bench: Bench) -> None:
        first, second = FakeLog(), FakeLog()
        bench.wait_for("first", first)
        await asyncio.sleep(0.5)
        bench.wait_for("first again", first)
        bench.wait_for("second", second)
        await bench.flusher.wait_for_flushes()
        assert bench.done[:2] == ["first", "second"] and "first again" in bench.done
        syncs = first.flushes + second.flushes
        await asyncio.sleep(5)
        assert first.flushes + second.flushes == syncs, "nothing is under way any more"

    live(story)


def test_whoever_closes_a_log_hears_of_a_write_back_that_failed_and_begins_no_other() -> None:
    """The kernel has dropped the pages: the sync of the close would succeed."""

    async def story(bench: Bench) -> None:
        bad, waiting = Written(OSError(5, "bad")), Written()
        for log in (bad, waiting):
            bench.flusher.write_back(cast("Log", log))
        await asyncio.sleep(0.5)
        await bench.flusher.wait_for_flushes()
        assert bad.failure is bad.file.error and waiting.file.syncs == 0
        await bench.flusher.wait_for_flushes()

    live(story)


class WithEpochs(FakeLog):
    """A log whose leader epochs are numbers: those it has, and those that its checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        self.is_dirty = False
        self.epochs = self.written = 0

    def pending_epoch_write(self) -> Work | None:
        return EpochWork(self, self.epochs) if self.epochs != self.written else None

    def pending_flush(self) -> Work | None:
        return self.pending_epoch_write() or super().pending_flush()


class EpochWork(Work):
    def __init__(self, log: WithEpochs, epochs: int) -> None:
        super().__init__(log)
        self.of, self.epochs = log, epochs

    def sync_files(self) -> None:
        self.of.written = self.epochs


def test_leader_epochs_are_written_one_log_after_the_other() -> None:
    async def story(bench: Bench) -> None:
        logs = [WithEpochs() for _ in range(3)]
        for log in logs:
            log.epochs = 1
            bench.flusher.write_epochs(cast("Log", log))
        deleted = logs.pop()
        bench.flusher.forget_log(cast("Log", deleted))
        await asyncio.sleep(1.5)
        assert [log.written for log in logs] == [1, 0]
        logs[0].epochs = 2
        bench.flusher.write_epochs(cast("Log", logs[0]))
        await bench.flusher.wait_for_flushes()
        assert [log.written for log in logs] == [1, 1], "what was not begun is written when the log is closed"
        assert deleted.written == 0 and bench.flusher.sync_count == 0

    live(story)


def test_leader_epochs_that_change_during_a_flush_are_written_by_the_next_one() -> None:
    async def story(bench: Bench) -> None:
        log = WithEpochs()
        log.is_dirty, log.epochs = True, 1
        bench.wait_for("flush", log)
        await asyncio.sleep(0.5)
        log.epochs = 2
        bench.flusher.write_epochs(cast("Log", log))
        await asyncio.sleep(1)
        assert (bench.done, log.written) == (["flush"], 1)
        await asyncio.sleep(1)
        assert (log.written, bench.flusher.sync_count) == (2, 2)

    live(story)
