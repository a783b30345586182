"""Replicas of different histories, partitions that were not given, and files that became others after the plan: the
right rows, a warning that says what was chosen, or a named error.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from moldau.storage.checkpoints.meta_properties import MetaProperties, write_meta_properties
from moldau.storage.checkpoints.partition_metadata import uuid_text, write_topic_id
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.tables.origins.cluster_metadata import DIRECTORY, RECORDS
from moldau.tables.refusals import DataLost, HistoriesDiffer, Refused, SegmentReplaced
from pyspark_moldau import DefaultSource
from tests.support.damaged_places import audited
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of

CLUSTER = "A" * 22
TOPIC_ID = bytes([5] * 16)
Part = tuple[int, int, str]
"""(leader epoch, number of records, their value): one batch of a replica."""


def write_replica(root: Path, node_id: int, parts: Sequence[Part], high_watermark: int) -> Path:
    directory = root / f"broker-{node_id}"
    log = Log.open(LocalFiles(), f"{directory}/t-0", LogConfig(), clean_shutdown=True, now_ms=0)
    for epoch, count, value in parts:
        records = [Record(None, value.encode(), 1_700_000_000_000) for _ in range(count)]
        batch = build_batch(records, base_offset=log.end_offset, partition_leader_epoch=epoch)
        result = log.append_as_follower(batch, epoch, 0)
        assert not result.error, result
    log.close(0, clean=True)
    write_checkpoints(directory, {("t", 0): high_watermark})
    write_meta_properties(LocalFiles(), str(directory), MetaProperties(CLUSTER, node_id, None))
    return directory


def write_metadata(directory: Path, leaders: Sequence[int]) -> None:
    """`__cluster_metadata` with the topic t, whose partitions node 9 led before."""
    written: list[tuple[object, int]] = [(TopicRecord(name="t", topic_id=TOPIC_ID), 0)]
    for number, leader in enumerate(leaders):
        written.append((PartitionRecord(partition_id=number, topic_id=TOPIC_ID, leader=9), 0))
        written.append((PartitionChangeRecord(partition_id=number, topic_id=TOPIC_ID, leader=leader), 0))
    values = [Record(None, RECORDS.encode(record, version), 1_700_000_000_000) for record, version in written]
    log = Log.open(LocalFiles(), f"{directory}/{DIRECTORY}", LogConfig(), clean_shutdown=True, now_ms=0)
    assert not log.append_as_follower(build_batch(values, base_offset=0, partition_leader_epoch=1), 1, 0).error
    log.close(0, clean=True)


def values_of(*directories: Path, **options: str) -> tuple[list[str], list[str]]:
    """(the values, the warnings)."""
    path = ",".join(map(str, directories))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        rows = rows_of(path, subscribe="t", columns="value", **options)
    values = [row["value"] for row in rows]
    return [value.decode() for value in values if isinstance(value, bytes)], [str(each.message) for each in warned]


def test_the_later_leader_epoch_is_read_and_what_was_chosen_is_said(tmp_path: Path) -> None:
    """The high watermark of the replica that an unclean election passed over is the higher one."""
    passed_over = write_replica(tmp_path, 1, [(0, 10, "both"), (0, 6, "lost")], 16)
    leader = write_replica(tmp_path, 2, [(0, 10, "both"), (1, 2, "kept")], 12)
    values, said = values_of(passed_over, leader)
    assert values == ["both"] * 10 + ["kept"] * 2
    expected = (
        f"moldau: t-0: {passed_over}/t-0 has another history than {leader}/t-0 from offset 10 on, "
        f"below its high watermark 16; {leader}/t-0 is read: it has the latest leader epoch, 1"
    )
    assert said == [expected]
    assert [each.check for each in audited(passed_over, leader).problems] == ["histories"]


def test_two_histories_of_one_epoch_are_an_error(tmp_path: Path) -> None:
    one = write_replica(tmp_path, 1, [(0, 10, "both"), (1, 6, "one")], 16)
    other = write_replica(tmp_path, 2, [(0, 10, "both"), (1, 6, "other")], 16)
    with pytest.raises(HistoriesDiffer, match=r"t-0: .* have different batches of leader epoch 1 at offset 15, below"):
        values_of(one, other)
    assert values_of(other)[0] == ["both"] * 10 + ["other"] * 6
    assert [each.check for each in audited(one, other).problems] == ["histories"]


@pytest.mark.parametrize(("leader", "values"), [(1, "kept"), (2, "lost"), (None, "lost")])
def test_the_metadata_of_the_cluster_name_the_leader(tmp_path: Path, leader: int | None, values: str) -> None:
    """Both replicas have begun epoch 2. The high watermark decides only if no metadata are there."""
    one = write_replica(tmp_path, 1, [(0, 10, "both"), (2, 8, "kept")], 18)
    two = write_replica(tmp_path, 2, [(0, 10, "both"), (1, 10, "lost"), (2, 2, "not replicated")], 20)
    if leader is not None:
        write_metadata(two, [leader])
    found, said = values_of(one, two)
    assert set(found[10:]) == {values}
    reason = "it has the latest" if leader is None else f"the metadata of the cluster name its broker {leader} as the"
    assert len(said) == 1 and reason in said[0], said


def test_metadata_that_are_older_than_an_epoch_do_not_choose(tmp_path: Path) -> None:
    passed_over = write_replica(tmp_path, 1, [(0, 10, "both"), (0, 6, "lost")], 16)
    leader = write_replica(tmp_path, 2, [(0, 10, "both"), (1, 2, "kept")], 12)
    write_metadata(passed_over, [1])
    values, said = values_of(passed_over, leader)
    assert values[10:] == ["kept"] * 2
    assert "it has the latest leader epoch, 1" in said[0]


@pytest.mark.parametrize("is_in_metadata", [True, False])
def test_partitions_that_were_not_given_are_an_error_or_a_warning(tmp_path: Path, is_in_metadata: bool) -> None:
    """The metadata of the cluster, or else the checkpoints, name three partitions; one is there."""
    directory = write_replica(tmp_path, 1, [(0, 10, "there")], 10)
    if is_in_metadata:
        write_metadata(directory, [1, 2, 3])
    else:
        write_checkpoints(directory, {("t", 0): 10, ("t", 1): 7, ("t", 2): 3})
    reason = "t: partitions 1, 2 are in none of the places that are read"
    with pytest.raises(DataLost, match=reason):
        values_of(directory)
    values, said = values_of(directory, failOnDataLoss="false")
    assert values == ["there"] * 10
    assert any(reason in each for each in said), said
    problems = audited(directory).problems
    assert [(each.check, each.path) for each in problems] == [("partitions", "t-1"), ("partitions", "t-2")]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_planned_file_that_became_another_of_equal_size_is_an_error(tmp_path: Path, is_last: bool) -> None:
    """As compaction does between the plan and the tasks. The inode alone tells it: the times are equal."""
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 400})
    source = DefaultSource({"path": str(tmp_path), "subscribe": "t"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    assert len(logs) > 2
    log = logs[-1] if is_last else logs[1]
    before = log.stat()
    other = log.with_suffix(".other")
    other.write_bytes(log.read_bytes())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(log)
    assert (log.stat().st_size, log.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(SegmentReplaced, match=f"t-0, offsets .*another file replaced {log} after the read was planned"):
        for task in tasks:
            for _ in reader.read(task):
                pass


def test_the_replica_of_a_topic_that_was_made_again_is_refused_by_both_ids(tmp_path: Path) -> None:
    """The new replica is in a place that is not read."""
    directory = write_replica(tmp_path, 1, [(0, 10, "stale")], 10)
    write_topic_id(LocalFiles(), f"{directory}/t-0", b"s" * 16)
    write_metadata(directory, [1])
    with pytest.raises(Refused, match=f"id {uuid_text(b's' * 16)}, .* name {uuid_text(TOPIC_ID)}: it was deleted"):
        values_of(directory)


def test_the_replica_of_the_topic_that_the_metadata_name_is_read(tmp_path: Path) -> None:
    directory = write_replica(tmp_path, 1, [(0, 10, "new")], 10)
    write_topic_id(LocalFiles(), f"{directory}/t-0", TOPIC_ID)
    write_metadata(directory, [1])
    assert values_of(directory)[0] == ["new"] * 10
