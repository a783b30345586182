"""For any history, consumers get the same before and after any rounds of cleaning.

A history appends batches of plain, idempotent and transactional producers, ends transactions, rolls, cleans with maps
and times of any kind, and opens the log again. Checked at each round:

    the table of a read_committed consumer from every offset on
    the table of a consumer that had read up to any offset, and goes on within delete.retention.ms
    no record of an aborted transaction is ever seen, and no producer forgets its sequence
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.compression import Codec
from moldau.storage.compaction.request import CleanerLimits
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.compaction.histories import (
    NOW_MS,
    apply,
    clean_log,
    committed,
    end_transaction,
    send,
)

DIRECTORY = "/data/t-0"
RETENTION_MS = 1000
FIRST_TRANSACTIONAL = 10

keys = st.sampled_from(["a", "b", "c", "d", "", "a long key " * 5])
pairs = st.lists(st.tuples(keys, st.booleans()), min_size=1, max_size=5)
appends = st.tuples(st.just("append"), st.sampled_from([-1, -1, 1, 2, 10, 11, 12]), pairs, st.sampled_from(list(Codec)))
ends = st.tuples(st.just("end"), st.sampled_from([10, 11, 12]), st.booleans())
rolls = st.tuples(st.just("roll"))
cleans = st.tuples(st.just("clean"), st.sampled_from([0, 300, 999, 1000, 5000]), st.sampled_from([3, 4, 8, 100]))
opens = st.tuples(st.just("open"), st.booleans())
expiries = st.tuples(st.just("expire"))
histories = st.lists(st.one_of(appends, appends, appends, ends, rolls, cleans, cleans, opens, expiries), max_size=60)


class Story:
    """A log under a history, and what its consumers must see."""

    def __init__(self, segment_bytes: int, io_buffer_size: int) -> None:
        self.disk = SimulatedDisk()
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            cleanup_policy=("compact",),
            delete_retention_ms=RETENTION_MS,
        )
        self.io_buffer_size = io_buffer_size
        self.now_ms = NOW_MS
        self.log = self.opened(0, None, clean=True)
        self.sequences: dict[int, int] = {}
        self.ids: dict[int, int] = {}
        self.open_values: dict[int, set[bytes]] = {}
        self.aborted: set[bytes] = set()
        self.count = 0
        self.consumers: list[tuple[int, int, dict[bytes, bytes]]] = []

    def opened(self, recovery_point: int, first_dirty: int | None, *, clean: bool) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            now_ms=NOW_MS,
            cleaned_end_offset=first_dirty,
        )

    def append(self, producer: int, chosen: list[tuple[str, bool]], codec: Codec) -> None:
        is_transactional = producer >= FIRST_TRANSACTIONAL
        producer_id = self.id_of(producer)
        batch: list[tuple[str | None, str | None]] = []
        for key, is_tombstone in chosen:
            self.count += 1
            value = None if is_tombstone else f"value {self.count}"
            batch.append((key, value))
            if is_transactional and value is not None:
                self.open_values.setdefault(producer_id, set()).add(value.encode())
        if is_transactional:
            self.open_values.setdefault(producer_id, set())
        sequence = self.sequences.get(producer_id, 0)
        fields = (-1, -1, -1) if producer < 0 else (producer_id, 0, sequence)
        send(self.log, *batch, producer=fields, codec=codec, is_transactional=is_transactional)
        self.sequences[producer_id] = sequence + len(batch)

    def end(self, producer: int, commits: bool) -> None:
        producer_id = self.id_of(producer)
        values = self.open_values.pop(producer_id, None)
        if values is not None:
            end_transaction(self.log, producer_id, 0, commits=commits)
            if not commits:
                self.aborted |= values

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def id_of(self, producer: int) -> int:
        return producer if producer < 0 else self.ids.setdefault(producer, producer)

    def expire(self) -> None:
        """The producers without an open transaction are forgotten, and begin anew with another id."""
        for producer, producer_id in self.ids.items():
            if producer_id not in self.open_values and producer_id in self.log.producers.entries:
                del self.log.producers.entries[producer_id]
                self.sequences.pop(producer_id, None)
                self.ids[producer] = producer_id + 100

    def open(self, clean: bool) -> None:
        log = self.log
        log.close(self.now_ms, clean=clean)
        if not clean:
            self.disk.end_process()
        self.log = self.opened(log.recovery_point, log.first_dirty_offset, clean=clean)
        assert self.log.end_offset == log.end_offset

    def clean(self, passed_ms: int, slots: int) -> None:
        log = self.log
        expected = self.views()
        self.consumers += [
            (self.now_ms, offset, apply({}, [each for each in committed(log) if each.offset < offset]))
            for offset in range(0, log.last_stable_offset(log.end_offset) + 1, 3)
        ]
        self.now_ms += passed_ms
        limits = CleanerLimits(
            dedupe_buffer_size=24 * slots, io_buffer_size=self.io_buffer_size, load_factor=0.75 if slots < 8 else 0.9
        )
        clean_log(self.disk, log, self.now_ms, limits)
        assert self.views() == expected
        assert not {record.value for record in committed(log)} & self.aborted
        self.consumers = [each for each in self.consumers if self.now_ms - each[0] < RETENTION_MS]
        for _, offset, table in self.consumers:
            assert apply(table, [each for each in committed(log) if each.offset >= offset]) == expected[0]

    def views(self) -> list[dict[bytes, bytes]]:
        """The table from each offset on: the consumer that begins there looks its offset up."""
        return [apply({}, committed(self.log, offset)) for offset in range(0, self.log.end_offset + 1, 2)]

    def check_sequences(self) -> None:
        for producer_id, sequence in self.sequences.items():
            if producer_id >= 0:
                assert self.log.producers.entries[producer_id].last_sequence == sequence - 1


@settings(max_examples=150, deadline=None)
@given(histories, st.sampled_from([600, 1000, 3000]), st.sampled_from([10, 300, 1 << 20]))
def test_consumers_see_the_same_after_any_rounds(
    history: list[tuple[object, ...]], segment_bytes: int, io_buffer_size: int
) -> None:
    story = Story(segment_bytes, io_buffer_size)
    for name, *arguments in history:
        getattr(story, str(name))(*arguments)
        story.check_sequences()
    for producer in list(story.ids):
        story.end(producer, commits=False)
    for passed_ms in (0, 500, 1000, 1000, 5000):
        story.roll()
        story.clean(passed_ms, 100)
    records = committed(story.log)
    assert len({record.key for record in records}) == len(records)
