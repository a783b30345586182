"""Any row of appends, truncations, deletions, flushes, restarts and crashes against a plain dictionary."""

from __future__ import annotations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig
from moldau.storage.segment import segment as segment_files
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.stories import NOW_MS, batch, read_all

CUT_LATER_SIZE_MIN = segment_files.CUT_LATER_SIZE_MIN


class LogAgainstAModel(RuleBasedStateMachine):
    log: Log

    @initialize(
        segment_bytes=st.integers(200, 1500),
        index_interval_bytes=st.sampled_from([0, 100, 4096]),
        seed=st.integers(0, 1 << 16),
        cut_later_size_min=st.sampled_from([0, 300, 1 << 20]),
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int, seed: int, cut_later_size_min: int) -> None:
        segment_files.CUT_LATER_SIZE_MIN = cut_later_size_min
        self.disk = SimulatedDisk(seed=seed)
        self.disk.make_directories("/d")
        self.disk.sync_directory("/")
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes, segment_index_bytes=240
        )
        self.model: dict[int, str] = {}
        self.epochs: dict[int, int] = {}
        self.times: dict[int, int] = {}
        self.start = self.end = self.synced = 0
        self.epoch = 0
        self.written = 0
        self.open(clean=False, recovery_point=0)

    def teardown(self) -> None:
        segment_files.CUT_LATER_SIZE_MIN = CUT_LATER_SIZE_MIN

    def open(self, *, clean: bool, recovery_point: int) -> None:
        self.log = Log.open(
            self.disk,
            "/d/model-0",
            self.config,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            now_ms=NOW_MS,
        )

    @rule(count=st.integers(1, 4), codec=st.sampled_from([Codec.NONE, Codec.GZIP]), jitter=st.integers(-20, 20))
    def append(self, count: int, codec: Codec, jitter: int) -> None:
        self.written += 1
        values = [f"{self.written}.{n}" for n in range(count)]
        timestamp = NOW_MS + self.written * 5 + jitter
        result = self.log.append_as_leader(batch(*values, timestamp=timestamp, codec=codec), self.epoch, NOW_MS)
        if result.error is ErrorCode.RECORD_LIST_TOO_LARGE:
            return
        assert result.error is ErrorCode.NONE and (result.base_offset, result.last_offset) == (
            self.end,
            self.end + count - 1,
        )
        for number, value in enumerate(values):
            self.model[self.end + number] = value
            self.epochs[self.end + number] = self.epoch
            self.times[self.end + number] = timestamp + number
        self.end += count

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.truncate_to(offset, NOW_MS)
        assert self.log.end_offset <= offset, "a batch that spans the offset goes whole"
        self.end = self.log.end_offset
        self.synced = min(self.synced, self.end)
        self.start = min(self.start, self.end)
        self.forget(lambda offset: offset >= self.end)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        assert self.log.advance_log_start(offset, self.end) is ErrorCode.NONE
        self.start = offset
        self.log.delete_old_segments(NOW_MS, self.end)
        self.forget(lambda offset: offset < self.start)

    def forget(self, is_gone) -> None:  # type: ignore[no-untyped-def]
        for kept in (self.model, self.epochs, self.times):
            for offset in [offset for offset in kept if is_gone(offset)]:
                del kept[offset]

    @rule()
    def flush(self) -> None:
        self.log.flush(NOW_MS)
        self.synced = self.end

    @rule()
    def release(self) -> None:
        self.log.release_files()

    @rule()
    def restart(self) -> None:
        self.log.close(NOW_MS, clean=True)
        self.synced = self.end
        self.open(clean=True, recovery_point=self.end)

    @rule()
    def kill(self) -> None:
        """The process dies, the machine lives: nothing that was appended is gone."""
        self.disk.end_process()
        self.open(clean=False, recovery_point=self.log.recovery_point)

    @rule()
    def cut_the_power(self) -> None:
        self.log.flush(NOW_MS)  # a truncation must be durable before the power goes: it has no promise of its own
        self.synced = self.end
        self.append(2, Codec.NONE, 0)
        recovery_point = self.log.recovery_point
        self.disk.crash()
        self.open(clean=False, recovery_point=recovery_point)
        assert self.synced <= self.log.end_offset <= self.end
        self.end = self.log.end_offset
        self.forget(lambda offset: offset >= self.end)

    @invariant()
    def it_is_the_same(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.end_offset) == (self.start, self.end)
        assert read_all(log, size_max=150) == self.model
        assert log.recovery_point <= self.end
        for offset in list(self.model)[:: max(1, len(self.model) // 3)]:
            assert log.epochs.epoch_of(offset) == self.epochs[offset]
            end_offset = log.end_offset_for_epoch(self.epochs[offset]).end_offset
            assert end_offset > offset

    @invariant()
    def any_range_can_be_read(self) -> None:
        middle = (self.start + self.end) // 2
        read = self.log.read(self.start, 1 << 20, end_offset=middle, at_least_one=True)
        assert isinstance(read, LogRead)
        assert (read.slice is None) or read.slice.position + read.slice.size <= read.slice.file.size()

    @invariant()
    def records_are_found_by_time(self) -> None:
        for timestamp in list(self.times.values())[:: max(1, len(self.times) // 3)]:
            found = self.log.offset_for_timestamp(timestamp)
            assert found is not None and self.times[found.offset] >= timestamp
        latest = self.log.offset_of_max_timestamp()
        if self.start == self.log.segments[0].base_offset and self.times:
            assert latest is not None and latest.timestamp == max(self.times.values())


LogAgainstAModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, phases=[Phase.generate]
)
TestLogAgainstAModel = LogAgainstAModel.TestCase
