"""Read committed from files alone: the offsets are those of a consumer that looks at the batches."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log_config import LogConfig
from moldau.tables.decoding.record_columns import record_batches
from moldau.tables.options.read_options import parse_options
from moldau.tables.origins.log_directories import LogDirectories
from moldau.tables.planning.planner import plan
from moldau.tables.refusals import DataLost
from tests.support.segments import write_checkpoints, write_partition
from tests.support.transactional_log import TransactionalLog, transactional_logs

pytestmark = pytest.mark.slow

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
COMMITTED = {"kafka.isolation.level": "read_committed"}


def read(directory: Path, **options: str) -> list[int]:
    given_options = {"path": str(directory), "subscribe": "t", **COMMITTED, **options}
    return [
        offset
        for task in plan(LocalFiles(), parse_options(given_options))
        for each in task
        for batch in record_batches(each, ["offset"])
        for offset in batch.column("offset").to_pylist()
    ]


@settings(max_examples=150, deadline=None)
@given(transactional_logs(), st.data())
def test_the_offsets_are_those_of_a_consumer(log: TransactionalLog, data: st.DataObject) -> None:
    high_watermark = data.draw(st.sampled_from([each.next_offset for each in log.batches]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_partition(directory, [each.data for each in log.batches], config=SMALL)
        write_checkpoints(directory, {("t", 0): high_watermark})
        (partition,) = LogDirectories(LocalFiles(), [name]).open([("t", 0)])
        assert partition.last_stable_offset() == log.last_stable_offset(high_watermark)
        assert read(directory) == log.committed(high_watermark)
        assert read(directory, minPartitions="5") == log.committed(high_watermark)
        start = data.draw(st.integers(0, log.last_stable_offset(high_watermark)))
        asked = {"startingOffsets": json.dumps({"t": {"0": start}})}
        assert read(directory, **asked) == [each for each in log.committed(high_watermark) if each >= start]


@settings(max_examples=50, deadline=None)
@given(transactional_logs(), st.data())
def test_without_producer_snapshots_all_headers_are_walked(log: TransactionalLog, data: st.DataObject) -> None:
    high_watermark = data.draw(st.sampled_from([each.next_offset for each in log.batches]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_partition(directory, [each.data for each in log.batches], config=SMALL)
        write_checkpoints(directory, {("t", 0): high_watermark})
        for snapshot in (directory / "t-0").glob("*.snapshot"):
            if data.draw(st.booleans()):
                snapshot.unlink()
            else:
                snapshot.write_bytes(snapshot.read_bytes()[:-1])
        assert read(directory) == log.committed(high_watermark)
        assert list((directory / "t-0").glob("*.log"))


@settings(max_examples=50, deadline=None)
@given(transactional_logs(), st.data())
def test_without_transaction_indexes_the_markers_tell(log: TransactionalLog, data: st.DataObject) -> None:
    high_watermark = data.draw(st.sampled_from([each.next_offset for each in log.batches]))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_partition(directory, [each.data for each in log.batches], config=SMALL)
        write_checkpoints(directory, {("t", 0): high_watermark})
        for index in sorted((directory / "t-0").glob("*.txnindex")):
            if data.draw(st.booleans()):
                index.unlink()
            else:
                index.write_bytes(b"")
        assert read(directory) == log.committed(high_watermark)
        assert read(directory, minPartitions="5") == log.committed(high_watermark)


def test_nothing_is_read_past_the_last_stable_offset(tmp_path: Path) -> None:
    log = TransactionalLog()
    log.append(3)
    log.append(2, producer_id=1)
    log.append(4)
    write_partition(tmp_path, [each.data for each in log.batches])
    write_checkpoints(tmp_path, {("t", 0): log.end_offset})
    assert read(tmp_path) == [0, 1, 2]
    assert read(tmp_path, **{"kafka.isolation.level": "read_uncommitted"}) == list(range(9))
    with pytest.raises(DataLost, match="records before 6 are asked for, and the last stable offset is 3"):
        read(tmp_path, endingOffsets='{"t": {"0": 6}}')
