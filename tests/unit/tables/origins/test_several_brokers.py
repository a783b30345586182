"""The directories of several brokers at once: replicas are used once, and only those of one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.checkpoints.meta_properties import MetaProperties, write_meta_properties
from moldau.storage.checkpoints.partition_metadata import write_topic_id
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.origins.log_directories import Checkpoints, LogDirectories
from moldau.tables.refusals import ClusterMismatch, Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of

CLUSTER = "A" * 22


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    """Three brokers with replicas of t-0 that are replicated up to 200, 300 and 100; broker 3 alone has t-1."""
    directories = []
    for node_id, high_watermark in ((1, 200), (2, 300), (3, 100)):
        directory = tmp_path / f"broker-{node_id}"
        write_partition(directory, mixed_batches(high_watermark // 10 + 1, 10))
        write_checkpoints(directory, {("t", 0): high_watermark, ("t", 1): 50})
        write_meta_properties(LocalFiles(), str(directory), MetaProperties(CLUSTER, node_id, None))
        directories.append(directory)
    write_partition(directories[2], mixed_batches(5, 10), partition=1)
    return directories


def joined(brokers: list[Path]) -> str:
    return ",".join(map(str, brokers))


def test_a_partition_is_read_once_and_up_to_the_highest_high_watermark(brokers: list[Path]) -> None:
    rows = rows_of(joined(brokers), subscribe="t", columns="partition,offset")
    expected = [(0, offset) for offset in range(300)] + [(1, offset) for offset in range(50)]
    assert [tuple(row.values()) for row in rows] == expected
    topics = rows_of(joined(brokers), table="topics")
    assert [(row["partition"], row["broker"]) for row in topics] == [(0, 2), (1, 3)]


def test_the_highest_log_start_counts(brokers: list[Path]) -> None:
    """A broker that was down has not seen that records were deleted."""
    write_checkpoints(brokers[0], {("t", 0): 200}, {("t", 0): 150})
    rows = rows_of(joined(brokers), assign='{"t": [0]}', columns="offset")
    assert [row["offset"] for row in rows] == list(range(150, 300))


def test_a_replica_without_a_checkpoint_is_passed_over(brokers: list[Path]) -> None:
    write_checkpoints(brokers[1], {})
    rows = rows_of(joined(brokers), assign='{"t": [0]}', columns="offset")
    assert [row["offset"] for row in rows] == list(range(200))


def test_directories_of_another_cluster_are_refused(brokers: list[Path]) -> None:
    write_meta_properties(LocalFiles(), str(brokers[1]), MetaProperties("B" * 22, 2, None))
    with pytest.raises(ClusterMismatch, match=f"broker-2 is of cluster {'B' * 22}, other directories are of {CLUSTER}"):
        rows_of(joined(brokers), subscribe="t")


def test_two_directories_of_one_broker_with_one_partition_are_refused(brokers: list[Path]) -> None:
    write_meta_properties(LocalFiles(), str(brokers[1]), MetaProperties(CLUSTER, 1, None))
    with pytest.raises(Refused, match=r"t-0 is in .*broker-2 and is .*broker-1/t-0 too, both of broker 1"):
        rows_of(joined(brokers), subscribe="t")


def test_replicas_of_two_topics_of_one_name_are_refused(brokers: list[Path]) -> None:
    write_topic_id(LocalFiles(), f"{brokers[0]}/t-0", b"a" * 16)
    write_topic_id(LocalFiles(), f"{brokers[1]}/t-0", b"b" * 16)
    with pytest.raises(Refused, match="are of different topics named t"):
        rows_of(joined(brokers), subscribe="t")


def test_foreign_entries_with_the_names_of_partitions_are_passed_over(brokers: list[Path]) -> None:
    (brokers[0] / "foo-1").mkdir()
    (brokers[0] / "backup-20261128").write_bytes(b"")
    (brokers[0] / "notes-2").mkdir()
    (brokers[0] / "notes-2" / "readme.txt").write_bytes(b"")
    assert {row["topic"] for row in rows_of(joined(brokers), table="topics")} == {"t"}
    assert len(rows_of(joined(brokers), subscribe="t")) == 350
    assert len(rows_of(joined(brokers), subscribePattern=".*")) == 350


def test_a_topic_that_goes_meanwhile_disturbs_no_reader_of_others(
    brokers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes between the listing of the directories and that of its segments. Who names it is told."""
    write_partition(brokers[2], mixed_batches(1, 10), topic="gone")
    read = LogDirectories._checkpoints
    deleted = brokers[2] / f"gone-0.{'0' * 32}-delete"

    def checkpoints_of(origin: LogDirectories) -> dict[str, Checkpoints]:
        (brokers[2] / "gone-0").rename(deleted)
        return read(origin)

    monkeypatch.setattr(LogDirectories, "_checkpoints", checkpoints_of)
    assert {row["topic"] for row in rows_of(str(brokers[2]), table="topics")} == {"t"}
    deleted.rename(brokers[2] / "gone-0")
    with pytest.raises(Refused, match="gone-0 is being deleted"):
        rows_of(str(brokers[2]), subscribe="gone")


def test_directories_of_the_zookeeper_era_are_read(brokers: list[Path]) -> None:
    """No node serves them; to a reader only the ids matter, which stand under other names."""
    for node_id, directory in enumerate(brokers, 1):
        (directory / "meta.properties").write_text(f"version=0\nbroker.id={node_id}\ncluster.id={CLUSTER}\n")
    topics = rows_of(joined(brokers), table="topics")
    assert [(row["partition"], row["broker"]) for row in topics] == [(0, 2), (1, 3)]
    (brokers[1] / "meta.properties").write_text(f"version=0\nbroker.id=2\ncluster.id={'B' * 22}\n")
    with pytest.raises(ClusterMismatch, match="broker-2 is of cluster B"):
        rows_of(joined(brokers), subscribe="t")
