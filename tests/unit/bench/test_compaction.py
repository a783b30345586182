"""The logs that the bench has cleaned, the commits that it sends, and what it counts of a broker's worker process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.compacted_offsets import (
    COMMITTED_TOPIC,
    GROUPS_COUNT,
    PARTITIONS_COUNT,
    commit_error_position,
    commit_frames,
)
from bench.dirty_logs import PARTITION_METADATA, LogKind, put_log, record_batches, write_log
from bench.processes import children, cpu_time_with_children
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compiler import encode
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.record_batch import crc_is_valid
from moldau.protocol.record_reader import records_of

NOW_MS = 1_700_000_000_000


def test_every_key_is_written_as_often_as_the_others() -> None:
    for codec in (Codec.NONE, Codec.LZ4):
        counts: dict[bytes | None, int] = {}
        offset = 0
        for batch in record_batches(LogKind("test", 1_050, 210, 100, codec), NOW_MS):
            ((position, header),) = iterate_batches(batch)
            assert crc_is_valid(batch, position, header) and header.base_offset == offset
            for record in records_of(batch, position, header):
                assert record.offset == offset and record.value is not None and len(record.value) == 100
                counts[record.key] = counts.get(record.key, 0) + 1
                offset += 1
        assert offset == 1_050 and set(counts.values()) == {5}


def test_a_log_ends_with_an_empty_segment_and_a_broker_gets_the_full_ones_as_links(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", LogKind("test", 500, 100, 100, Codec.NONE), NOW_MS)
    assert log.end_offset == 500
    target = tmp_path / "topic-0"
    target.mkdir()
    (target / PARTITION_METADATA).write_text("version: 0")
    (target / f"{0:020}.log").write_bytes(b"what the broker has created")
    put_log(log, target)
    full, active = (f"{offset:020}.log" for offset in (0, 500))
    assert os.path.samefile(log.directory / full, target / full)
    assert (target / active).stat().st_size == 0 and not os.path.samefile(log.directory / active, target / active)
    assert (target / PARTITION_METADATA).exists()


def test_commits_are_of_one_size_and_their_error_is_where_the_load_looks() -> None:
    (first, *_) = frames = commit_frames()
    assert len({each.frame_size for each in frames}) == 1
    assert first.count == GROUPS_COUNT * PARTITIONS_COUNT
    partition = OffsetCommitResponsePartition(partition_index=3, error_code=ErrorCode.NOT_COORDINATOR)
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=COMMITTED_TOPIC, partitions=[partition])])
    reply = bytes(4 + 4 + 1) + encode(response, 8)
    position = commit_error_position()
    assert reply[position : position + 2] == int(ErrorCode.NOT_COORDINATOR).to_bytes(2, "big")


def test_the_cpu_time_of_a_child_counts_once_it_was_waited_for() -> None:
    loop = "import time\nwhile time.process_time() < 0.2: pass\ninput()"
    before = cpu_time_with_children(os.getpid())
    with subprocess.Popen([sys.executable, "-c", loop], stdin=subprocess.PIPE) as process:
        assert process.pid in children(os.getpid())
        process.communicate(b"\n")
    assert process.pid not in children(os.getpid())
    # Each of the four numbers that are summed is rounded down to a tick of 10 ms.
    assert cpu_time_with_children(os.getpid()) - before >= 0.15
