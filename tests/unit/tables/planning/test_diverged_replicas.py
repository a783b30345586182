"""Replicas of several brokers that have diverged, were truncated, and are in two tiers: the offsets of a consumer.

A replica agrees with the partition up to its own high watermark. Past it there may be batches, and even markers, that
an election has discarded: some replicas have truncated them and fetched what the leader has, others have not yet.
MOLDAU_TEST_HISTORIES=2000 draws so many of them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.compression import Codec
from moldau.storage.checkpoints.meta_properties import MetaProperties, write_meta_properties
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment_listing import ListedSegment, list_segments
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY
from moldau.storage.tiered.manifest import encode_cluster_manifest
from moldau.tables.decoding.record_columns import record_batches
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.planner import plan
from tests.support.segments import EPOCH, write_checkpoints
from tests.support.tiered_copy import CLUSTER, copy_segment
from tests.support.transactional_log import PRODUCERS, TransactionalLog, transactional_logs

pytestmark = pytest.mark.slow

EXAMPLES: Final = int(os.environ.get("MOLDAU_TEST_HISTORIES", "60"))
SMALL: Final = LogConfig(segment_bytes=400, index_interval_bytes=100)
BROKERS: Final = 3
DIRECTORIES: Final = 2
"""Log directories of each broker."""


class Cluster:
    """The log directories of the brokers, and a tiered storage."""

    def __init__(self, root: Path, log: TransactionalLog, data: st.DataObject) -> None:
        self.tier = root / "tier"
        self.directories = [
            [root / f"broker-{broker}-{number}" for number in range(DIRECTORIES)] for broker in range(BROKERS)
        ]
        self.high_watermark = 0
        self._log, self._data = log, data
        for broker, directories in enumerate(self.directories):
            for directory in directories:
                directory.mkdir()
                write_meta_properties(LocalFiles(), str(directory), MetaProperties(CLUSTER, broker, None))
            self._write_replica(data.draw(st.sampled_from(directories), label="directory of the replica"))

    @property
    def path(self) -> str:
        places = [place for directories in self.directories for place in directories]
        return ",".join(map(str, [*places, *([self.tier] if self.tier.exists() else [])]))

    def offload(self) -> None:
        """The leader has copied sealed segments below the last stable offset; replicas have deleted some of these."""
        leader = self._partition_with_most()
        limit = self._log.last_stable_offset(self.high_watermark)
        sealed = [
            each for each in list_segments(LocalFiles(), str(leader))[:-1] if (each.next_base_offset or 0) <= limit
        ]
        copied = sealed[: self._data.draw(st.integers(0, len(sealed)), label="copied segments")]
        if not copied:
            return
        asyncio.run(_copy(self.tier, copied))
        end = copied[-1].next_base_offset or 0
        for partition in self._partitions():
            local = list_segments(LocalFiles(), str(partition))[:-1]
            gone = [each for each in local if (each.next_base_offset or 0) <= end]
            for each in gone[: self._data.draw(st.integers(0, len(gone)), label="deleted segments")]:
                for file in partition.glob(f"{each.base_offset:020}.*"):
                    file.unlink()

    def _write_replica(self, directory: Path) -> None:
        """What one replica has: the partition up to its high watermark, and its own end."""
        draw, log = self._data.draw, self._log
        high_watermark = draw(st.sampled_from([0, *(each.next_offset for each in log.batches)]), label="high watermark")
        replica = Log.open(LocalFiles(), f"{directory}/t-0", SMALL, clean_shutdown=True, now_ms=0)
        append(replica, log, 0, high_watermark)
        match draw(st.sampled_from(["as the leader", "diverged", "truncated"]), label="end"):
            case "as the leader":
                append(replica, log, high_watermark, draw(st.integers(high_watermark, log.end_offset)))
            case "diverged":
                append(replica, self._other_end(high_watermark), high_watermark)
            case _:
                append(replica, self._other_end(high_watermark), high_watermark)
                assert replica.truncate_to(high_watermark, 0) or replica.end_offset == high_watermark
                append(replica, log, high_watermark)
        replica.close(0, clean=True)
        write_checkpoints(directory, {("t", 0): high_watermark})
        self.high_watermark = max(self.high_watermark, high_watermark)

    def _other_end(self, offset: int) -> TransactionalLog:
        """The partition up to an offset, and then other batches: data and markers of the same producers."""
        other = TransactionalLog([each for each in self._log.batches if each.next_offset <= offset], {}, offset)
        kinds = st.tuples(st.integers(0, PRODUCERS), st.integers(1, 4), st.booleans(), st.booleans())
        for producer, count, is_end, commits in self._data.draw(st.lists(kinds, min_size=1, max_size=8), label="other"):
            if producer == PRODUCERS:
                other.append(count, codec=Codec.LZ4)
            elif is_end:
                other.end(producer, commits=commits)
            else:
                other.append(count, producer)
        return other

    def _partitions(self) -> list[Path]:
        return [each / "t-0" for places in self.directories for each in places if (each / "t-0").exists()]

    def _partition_with_most(self) -> Path:
        """The replica whose high watermark is the partition's."""
        for partition in self._partitions():
            checkpoint = (partition.parent / "replication-offset-checkpoint").read_text().splitlines()[2:]
            if checkpoint == [f"t 0 {self.high_watermark}"]:
                return partition
        raise AssertionError("no replica has the highest high watermark")


async def _copy(tier: Path, segments: Sequence[ListedSegment]) -> None:
    tier.mkdir()
    storage = DirectoryStorage(str(tier), Random(1))
    await storage.put(CLUSTER_MANIFEST_KEY, encode_cluster_manifest(CLUSTER))
    for number, segment in enumerate(segments):
        await copy_segment(storage, segment, segment_id=bytes([*bytes(15), number + 1]))


def append(replica: Log, log: TransactionalLog, start: int, end: int | None = None) -> None:
    """The batches with offsets in [start, end)."""
    for each in log.batches:
        if each.base_offset >= start and (end is None or each.next_offset <= end):
            result = replica.append_as_follower(each.data, EPOCH, 0)
            assert not result.error, result


def offsets_of(path: str, **options: str) -> list[int]:
    given_options = {"path": path, "subscribe": "t", "kafka.isolation.level": "read_committed", **options}
    return [
        offset
        for task in plan(LocalFiles(), parse_options(given_options))
        for each in task
        for batch in record_batches(each, ["offset"])
        for offset in batch.column("offset").to_pylist()
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(transactional_logs(), st.data())
def test_the_offsets_are_those_of_a_consumer_of_the_leader(log: TransactionalLog, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        cluster = Cluster(Path(root), log, data)
        assert offsets_of(cluster.path) == log.committed(cluster.high_watermark)
        cluster.offload()
        assert offsets_of(cluster.path) == log.committed(cluster.high_watermark)
        assert offsets_of(cluster.path, minPartitions="4") == log.committed(cluster.high_watermark)
