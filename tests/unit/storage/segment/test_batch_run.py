"""The quick walk over plain batches comes to the same as deciding about every batch by itself."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_batch import PREFIX
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log import recovery
from moldau.storage.log.log import Log
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_state import BATCHES_KEPT, ProducerEntry
from moldau.storage.segment import batch_scan
from moldau.storage.segment.batch_run import BatchRun
from tests.unit.storage.stories import NOW_MS, batch

CONFIG = LogConfig(index_interval_bytes=300)


class Outcome(NamedTuple):
    """All that a recovery leaves behind."""

    end_offset: int
    files: dict[str, bytes]
    epochs: list[tuple[int, int]]
    producers: dict[int, list[object]]
    reports: list[str]


def takes_nothing(
    next_offset: int, leader_epoch: int, limit_offset: int, producers_offset: int, batches_kept_max: int
) -> BatchRun:
    """A walk for which no batch is plain: all are past its limit."""
    return BatchRun(next_offset, leader_epoch, -1, producers_offset, batches_kept_max)


def history(random: Random) -> bytes:
    """Batches as a log may hold them: several producers and leaders, transactions, now and then large ones."""
    rows = bytearray()
    offset = leader_epoch = 0
    epochs = dict.fromkeys(range(4), 0)
    sequences = dict.fromkeys(range(4), 0)
    for number in range(random.randint(1, 120)):
        producer_id = random.choice((-1, -1, 0, 1, 2, 3))
        # Producer 2 writes in transactions and outside of them, which no client does.
        is_transactional = producer_id == 3 or (producer_id == 2 and random.random() < 0.5)
        leader_epoch += random.random() < 0.03
        values = [f"{number} {each}" * random.choice((1, 1, 1, 60)) for each in range(random.randint(1, 3))]
        producer = (-1, -1, -1)
        if producer_id >= 0:
            if random.random() < 0.05:
                epochs[producer_id] += 1
                sequences[producer_id] = 0
            producer = (producer_id, epochs[producer_id], sequences[producer_id])
            sequences[producer_id] += len(values)
        timestamp = NOW_MS + random.randint(0, 500)
        made = batch(*values, timestamp=timestamp, producer=producer, is_transactional=is_transactional)
        count = len(values)
        if is_transactional and random.random() < 0.3:
            made = bytearray(
                end_transaction_marker(
                    commits=random.random() < 0.5,
                    producer_id=producer_id,
                    producer_epoch=epochs[producer_id],
                    coordinator_epoch=1,
                    timestamp=timestamp,
                )
            )
            count = 1
        PREFIX.pack_into(made, 0, offset, len(made) - 12, leader_epoch)
        rows += made
        offset += count + random.choice((0,) * 20 + (3,))
    return bytes(rows)


def damaged(rows: bytes, random: Random) -> bytes:
    kind = random.choice(("none", "none", "flip", "tail", "cut"))
    if kind == "flip":
        position = random.randrange(len(rows))
        return rows[:position] + bytes([rows[position] ^ (1 << random.randrange(8))]) + rows[position + 1 :]
    if kind == "tail":
        return rows + random.choice((bytes(100), b"\xff" * 80, rows[:70]))
    return rows[: -random.randint(1, 200)] if kind == "cut" else rows


def recovered(directory: Path, rows: bytes, recovery_point: int) -> Outcome | str:
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(rows)
    reports: list[str] = []
    try:
        log = Log.open(
            LocalFiles(),
            str(directory),
            CONFIG,
            recovery_point=recovery_point,
            now_ms=NOW_MS,
            report=lambda text: reports.append(text.replace(str(directory), "")),
        )
    except CorruptLog as corrupt:
        return str(corrupt).replace(str(directory), "")
    producers = {producer_id: known_of(entry) for producer_id, entry in log.producers.entries.items()}
    reports.append(f"unstable from {log.producers.first_unstable_offset()}")
    epochs = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
    log.close(NOW_MS, clean=True)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    return Outcome(log.end_offset, files, epochs, producers, reports)


def known_of(entry: ProducerEntry) -> list[object]:
    """Named one by one: a compiled class has no `__slots__` to ask."""
    return [
        entry.producer_id,
        entry.producer_epoch,
        entry.batches,
        entry.last_sequence,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.open_transaction_offset,
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_walk_and_single_decisions_agree(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(batch_scan, "PIECE_SIZE", random.choice((100, 500, 1 << 20)))
    rows = damaged(history(random), random)
    recovery_point = random.choice((0, 0, 5))
    quick = recovered(tmp_path / "quick" / "t-0", rows, recovery_point)
    monkeypatch.setattr(recovery, "BatchRun", takes_nothing)
    assert recovered(tmp_path / "slow" / "t-0", rows, recovery_point) == quick


def test_the_walk_takes_batches_and_markers_of_transactions() -> None:
    data = [
        bytes(batch("c", base_offset=offset, leader_epoch=0, producer=(1, offset, 0), is_transactional=True))
        for offset in (0, 2)
    ]
    markers = [
        end_transaction_marker(
            commits=True,
            producer_id=1,
            producer_epoch=offset,
            coordinator_epoch=0,
            timestamp=NOW_MS,
            base_offset=offset,
            partition_leader_epoch=0,
        )
        for offset in (1, 3)
    ]
    rows = data[0] + markers[0] + data[1] + markers[1]
    run = BatchRun(0, 0, 9, 0, BATCHES_KEPT)
    assert run.check_batches(rows, 0, 0) == len(rows) and run.next_offset == 4
    assert [(each[2], each[-1]) for each in run.transactional] == [(0, b""), (1, markers[0]), (2, b""), (3, markers[1])]


def test_the_walk_stops_where_a_batch_needs_thought() -> None:
    plain = bytes(batch("a", base_offset=0, leader_epoch=0)) + bytes(batch("b", base_offset=1, leader_epoch=0))
    for odd in (
        batch("c", base_offset=1, leader_epoch=0),
        batch("c", base_offset=2, leader_epoch=1),
        batch("c", base_offset=2, leader_epoch=0, producer=(1, 0, -1)),
        batch("c", base_offset=9, leader_epoch=0),
        batch("c", base_offset=2, leader_epoch=0)[:-1],
    ):
        run = BatchRun(0, 0, 9, 0, BATCHES_KEPT)
        assert run.check_batches(plain + bytes(odd), 0, 0) == len(plain)
        assert run.next_offset == 2
