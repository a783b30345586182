"""The metadata log beside its snapshots: which of them stay."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pytest

from moldau.broker.metadata.metadata_log import DIRECTORY, MetadataLog, unlink_all
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.raft.election_state import CorruptQuorumState
from moldau.kraft.raft.fetch_service import divergence_of_replica
from moldau.kraft.snapshot.names import SnapshotId, snapshots_in
from moldau.protocol.records.metadata import NoOpRecord
from moldau.storage.directory.previous_run import (
    PreviousRun,
    ServingEpoch,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_serving_epoch,
)
from moldau.storage.files.port import make_durable_directory
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import SimulatedCrash


class Retention(NamedTuple):
    retention_bytes: int
    retention_ms: int


KEEPS_NOTHING = Retention(retention_bytes=0, retention_ms=-1)
"""As little of the past as there can be."""


def opened(disk: SimulatedDisk) -> MetadataLog:
    return MetadataLog.open(disk, "/data", LogConfig(), 1000).log


def written(metadata_log: MetadataLog, end_offset: int) -> SnapshotId:
    """A snapshot of this many records, durable and not announced yet."""
    image = MetadataImage(Provenance(end_offset=end_offset, epoch=1, timestamp_ms=1000))
    return metadata_log.write_snapshot(image, QuorumDescription(), 1000)


def took(disk: SimulatedDisk, metadata_log: MetadataLog, snapshot: SnapshotId) -> list[SnapshotId]:
    """What is there once a snapshot was taken."""
    unlink_all(disk, metadata_log.snapshot_written(snapshot, KEEPS_NOTHING, 1000))
    return snapshots_in(disk.list_directory(f"/data/{DIRECTORY}"))


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    return disk


def test_a_snapshot_for_which_the_disk_has_no_space_leaves_nothing(disk: SimulatedDisk) -> None:
    metadata_log = opened(disk)
    before = disk.used_bytes
    disk.faults.capacity_bytes = before + 20
    for end_offset in (3, 4):
        with pytest.raises(OSError, match="space"):
            written(metadata_log, end_offset)
    assert disk.used_bytes == before and not any(
        name.endswith(".part") for name in disk.list_directory(f"/data/{DIRECTORY}")
    )


def test_the_newest_snapshot_stays(disk: SimulatedDisk) -> None:
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    assert took(disk, metadata_log, written(metadata_log, 2)) == [SnapshotId(2, 1)]
    assert took(disk, metadata_log, written(metadata_log, 4)) == [SnapshotId(4, 1)]
    assert metadata_log.start_offset == 4


def test_the_same_snapshot_twice_is_one(disk: SimulatedDisk) -> None:
    """Nothing was committed between the two: given up as the older one, the newest would have been gone."""
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    first = written(metadata_log, 4)
    assert took(disk, metadata_log, first) == [first]
    assert took(disk, metadata_log, written(metadata_log, 4)) == [first]
    assert metadata_log.latest_snapshot == first
    metadata_log.log.close(1000, clean=False)
    assert opened(disk).end_offset == 5


def test_one_that_a_leaders_overtook_is_given_up(disk: SimulatedDisk) -> None:
    """It was being written when the leader's took the place of the log: what the log begins with must stay."""
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    own, leaders = written(metadata_log, 4), written(metadata_log, 42)
    metadata_log.replace_by_snapshot(leaders, 1000)
    assert took(disk, metadata_log, own) == [leaders]
    metadata_log.append([NoOpRecord()], 30, 1, 1000)
    metadata_log.log.close(1000, clean=False)
    again = opened(disk)
    assert (again.start_offset, again.end_offset, again.latest_snapshot) == (42, 43, leaders)


def test_a_snapshot_that_takes_the_place_of_the_log_is_the_earliest(disk: SimulatedDisk) -> None:
    """Otherwise a follower that holds it and nothing after it is sent the same snapshot again for ever."""
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    own, leaders = written(metadata_log, 4), written(metadata_log, 42)
    metadata_log.snapshot_written(own, Retention(retention_bytes=-1, retention_ms=-1), 1000)
    paths = metadata_log.replace_by_snapshot(leaders, 1000)
    assert paths == [f"/data/{DIRECTORY}/{own.file_name}"] and metadata_log.earliest_snapshot == leaders
    assert (
        metadata_log.replace_by_snapshot(leaders, 1000) == []
        and divergence_of_replica(metadata_log, 42, leaders.epoch) is None
    )
    metadata_log.log.close(1000, clean=False)
    again = opened(disk)  # killed before it was unlinked
    assert again.earliest_snapshot == leaders and divergence_of_replica(again, 42, leaders.epoch) is None
    assert snapshots_in(disk.list_directory(f"/data/{DIRECTORY}")) == [leaders]


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_crash_while_a_snapshot_takes_the_place_of_the_log_loses_neither(is_power_lost: bool) -> None:
    """What is left of the log looks like one that has lost committed records, but the snapshot has them."""
    for step in range(1, 40):
        disk = SimulatedDisk(seed=step)
        make_durable_directory(disk, "/data")
        metadata_log = MetadataLog.open(disk, "/data", LogConfig(segment_bytes=300), 1000).log
        for _ in range(20):
            metadata_log.append([NoOpRecord()], 30, 1, 1000)
        metadata_log.log.flush(1000)
        leaders = written(metadata_log, 42)
        disk.crash_at_step = disk.steps + step
        with suppress(SimulatedCrash):
            metadata_log.replace_by_snapshot(leaders, 1000)
        disk.end_process()
        disk.power_on()
        if is_power_lost:
            disk.crash()
        again = opened(disk)
        assert (again.start_offset, again.end_offset, again.log.epochs.entries) == (42, 42, []), step


def test_what_a_start_finds_is_durable_once_it_is_open(disk: SimulatedDisk) -> None:
    """The process before was killed in the middle of a sync: the next one vouches for the whole log with its first
    fetch, and then the power goes."""
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    disk.end_process()
    assert opened(disk).end_offset == 5
    disk.crash()
    assert opened(disk).end_offset == 5


@pytest.mark.parametrize("end_offset", [4, 5, 6])
def test_a_log_that_parts_from_the_snapshot_beside_it_is_replaced(disk: SimulatedDisk, end_offset: int) -> None:
    """The leader's snapshot was durable when the power went, and the log still ended in what was never committed: kept,
    it would have been truncated below the snapshot, and the voters that the snapshot names forgotten."""
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    metadata_log.log.close(1000, clean=True)
    image = MetadataImage(Provenance(end_offset=end_offset, epoch=2, timestamp_ms=1000))
    leaders = metadata_log.write_snapshot(image, QuorumDescription(), 1000)
    again = opened(disk)
    assert (again.start_offset, again.end_offset, again.last_epoch) == (end_offset, end_offset, 2)
    assert again.latest_snapshot == leaders
    again.append([NoOpRecord()], 30, 2, 1000)
    again.log.close(1000, clean=False)
    assert opened(disk).end_offset == end_offset + 1


def test_damage_below_a_snapshot_keeps_the_node_from_starting(disk: SimulatedDisk) -> None:
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    metadata_log.log.flush(1000)
    written(metadata_log, 4)
    metadata_log.log.close(1000, clean=False)
    path = metadata_log.log.segments[0].path(".log")
    file = disk.open(path)
    file.pwrite(b"\xff", file.size() // 5 + 40)
    before = disk.read(path)
    with pytest.raises(CorruptLog, match=f"{DIRECTORY}.*Committed metadata may be lost.*put the file back"):
        opened(disk)
    assert disk.read(path) == before


def test_a_torn_end_of_the_log_is_cut_with_a_warning(disk: SimulatedDisk) -> None:
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    metadata_log.log.flush(1000)
    metadata_log.log.close(1000, clean=False)
    file = disk.open(metadata_log.log.segments[0].path(".log"))
    file.truncate(file.size() - 3)
    told: list[str] = []
    assert MetadataLog.open(disk, "/data", LogConfig(), 1000, told.append).log.end_offset == 4
    assert len(told) == 1 and "bytes from offset 4 on" in told[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\xff\xfe", "not JSON"), (b"", "not JSON"), (b'{"data_version":1}', "'leaderEpoch' is missing")],
)
def test_a_damaged_vote_names_its_file_and_the_remedy(disk: SimulatedDisk, content: bytes, reason: str) -> None:
    opened(disk).log.close(1000, clean=True)
    disk.open(f"/data/{DIRECTORY}/quorum-state", create=True).append([content])
    with pytest.raises(CorruptQuorumState, match=f"/data/{DIRECTORY}/quorum-state: .*{reason}.*put it back"):
        opened(disk)


def closed_cleanly(disk: SimulatedDisk) -> str:
    """Write five batches, stop cleanly; the path of the segment."""
    metadata_log = opened(disk)
    for _ in range(5):
        metadata_log.append([NoOpRecord()], 30, 1, 1000)
    metadata_log.log.close(1000, clean=True)
    write_clean_shutdown(disk, "/data", 7)
    return metadata_log.log.segments[0].path(".log")


def reopened(disk: SimulatedDisk, previous: PreviousRun, *, accepts_loss: bool = False) -> MetadataLog:
    return MetadataLog.open(disk, "/data", LogConfig(), 1000, None, previous, accepts_loss=accepts_loss).log


@pytest.mark.parametrize("left", [0, 1 / 5, 1 / 2, 4 / 5, 0.99], ids=str)
def test_what_a_clean_stop_wrote_is_given_up_only_where_the_loss_is_accepted(disk: SimulatedDisk, left: float) -> None:
    path = closed_cleanly(disk)
    file = disk.open(path)
    file.truncate(int(file.size() * left))
    before = disk.read(path)
    previous = PreviousRun(disk, "/data", "a boot")
    for _ in range(2):
        with pytest.raises(CorruptLog, match=r"moldau\.metadata\.loss\.accept=true"):
            reopened(disk, previous)
    assert disk.read(path) == before
    assert reopened(disk, previous, accepts_loss=True).log.end_offset == int(5 * left)


def test_a_damaged_batch_after_a_clean_stop_keeps_the_node_from_starting(disk: SimulatedDisk) -> None:
    path = closed_cleanly(disk)
    file = disk.open(path)
    file.pwrite(b"\xff", file.size() // 5 * 4 + 40)
    previous = PreviousRun(disk, "/data", "a boot")
    with pytest.raises(CorruptLog, match="everything before offset 5 was flushed"):
        reopened(disk, previous)
    assert reopened(disk, previous, accepts_loss=True).log.end_offset == 4


@pytest.mark.parametrize(("boot", "is_kept"), [("a boot", True), ("another boot", False)])
def test_batches_behind_a_damage_are_kept_where_the_machine_did_not_restart(
    disk: SimulatedDisk, boot: str, is_kept: bool
) -> None:
    path = closed_cleanly(disk)
    remove_clean_shutdown(disk, "/data")
    write_serving_epoch(disk, "/data", ServingEpoch("a boot", 7))
    file = disk.open(path)
    file.pwrite(b"\xff", file.size() // 5 * 2 + 40)
    previous = PreviousRun(disk, "/data", boot)
    if is_kept:
        with pytest.raises(CorruptLog, match="whole batches follow from offset 3 on"):
            reopened(disk, previous)
    else:
        assert reopened(disk, previous).log.end_offset == 2
