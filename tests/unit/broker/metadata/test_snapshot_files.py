"""Snapshots of the metadata that arrive part by part."""

from __future__ import annotations

import errno

import pytest

from moldau.broker.metadata.snapshot_files import MetadataSnapshotFiles
from moldau.kraft.snapshot.names import SnapshotId
from moldau.testing.simulation.disk import SimulatedDisk

DIRECTORY = "/data/__cluster_metadata-0"
SNAPSHOT = SnapshotId(109, 1)


def test_a_full_disk_is_told_at_the_end_and_leaves_nothing_behind() -> None:
    """The parts come as answers of a peer: raised there, the refusal would have ended the connection, and the machine
    would have gone on with the next part of a file that lacks one (seeds 23 and 26 of the swarm)."""
    disk = SimulatedDisk()
    disk.make_directories(DIRECTORY)
    files = MetadataSnapshotFiles(disk, DIRECTORY)
    files.write_part(SNAPSHOT, 0, b"a" * 100)
    disk.faults.capacity_bytes = disk.used_bytes + 10
    files.write_part(SNAPSHOT, 100, b"b" * 100)
    files.write_part(SNAPSHOT, 200, b"c" * 5)
    with pytest.raises(OSError) as refused:
        files.finish(SNAPSHOT)
    assert refused.value.errno == errno.ENOSPC
    assert disk.list_directory(DIRECTORY) == []


def test_it_is_written_anew_once_there_is_room() -> None:
    disk = SimulatedDisk()
    disk.make_directories(DIRECTORY)
    files = MetadataSnapshotFiles(disk, DIRECTORY)
    disk.faults.capacity_bytes = disk.used_bytes
    files.write_part(SNAPSHOT, 0, b"a")
    disk.faults.capacity_bytes = 1 << 30
    files.write_part(SNAPSHOT, 0, b"a" * 100)
    (part,) = disk.list_directory(DIRECTORY)
    assert disk.file_size(f"{DIRECTORY}/{part}") == 100
