"""`moldau backup` of the directories of a cluster that runs: under writes, killed, twice, and each mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, read_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.testing.cluster import Cluster
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import until

pytestmark = pytest.mark.processes
RECORD = b"x" * 20_000
SMALL_BATCH_SIZE_MAX = 100
"""The most bytes of a batch with one record of some bytes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        2, settings={"offsets.topic.num.partitions": 2, "replica.high.watermark.checkpoint.interval.ms": 100}
    ) as made:
        yield made


@pytest.fixture
def run(cluster: Cluster) -> DailyCommand:
    return DailyCommand(cluster.bootstrap_servers)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "store"
    place.mkdir()
    return place


def paths(cluster: Cluster) -> str:
    assert cluster.directory is not None
    return ",".join(str(cluster.directory / f"node-{node.id}") for node in cluster.nodes)


def fill(cluster: Cluster, topic: str, count: int, value: bytes) -> None:
    """Write records, and wait until each node has written down the high watermarks of its replicas."""
    for _ in range(count):
        cluster.produce(topic, value)
    ends = {(topic, partition): end for partition, end in cluster.client.ends(topic).items()}

    def reached(directory: str) -> bool:
        written_down = read_offsets(LocalFiles(), directory, HIGH_WATERMARK_CHECKPOINT)
        return all(written_down.get(key, 0) >= end for key, end in ends.items())

    assert until(lambda: all(map(reached, paths(cluster).split(","))), True)


def size_of(store: Path) -> int:
    return sum(each.stat().st_size for each in (store / "pieces").rglob("*") if each.is_file())


def test_two_backups_under_writes(cluster: Cluster, run: DailyCommand, store: Path) -> None:
    cluster.create_topic("orders", 3)
    fill(cluster, "orders", 300, RECORD)
    stop = Event()
    written: list[bytes] = []

    def write() -> None:
        while not stop.is_set():
            cluster.produce("orders", b"small")
            written.append(b"small")

    writer = Thread(target=write)
    writer.start()
    try:
        (first,) = run.rows("backup", str(store), "--path", paths(cluster))
        size = size_of(store)
        assert first["copied_bytes"] == size > 300 * len(RECORD)
        (second,) = run.rows("backup", str(store), "--path", paths(cluster))
    finally:
        stop.set()
        writer.join()
    assert second["copied_bytes"] == size_of(store) - size < size // 50 + len(written) * SMALL_BATCH_SIZE_MAX
    assert second["kept_bytes"] == size
    assert set(second["read_from"]) >= {"orders-0", "orders-1", "orders-2"}
    for backup in (first, second):
        (found,) = run.rows("backup", str(store), "--verify", backup["backup"])
        assert found["damaged"] == 0 and found["objects"] > 3
    listed = run.rows("backup", str(store), "--list")
    assert [each["backup"] for each in listed] == [first["backup"], second["backup"]]
    assert listed[1]["new_bytes"] == second["copied_bytes"]
    *_, dropped = run.rows("backup", str(store), "--path", paths(cluster), "--keep", "1")
    assert dropped["dropped"] == [first["backup"], second["backup"]]
    assert run("backup", str(store), "--verify").status == 0


def test_a_killed_backup_goes_on(cluster: Cluster, run: DailyCommand, store: Path) -> None:
    cluster.create_topic("large", 2)
    fill(cluster, "large", 80, RECORD * 40)
    words = [sys.executable, "-m", "moldau", "backup", str(store), "--path", paths(cluster)]
    slow = [*words, "--max-bytes-per-second", "20000000"]
    for number, stopped in enumerate((signal.SIGKILL, signal.SIGINT), 1):
        with subprocess.Popen(slow, stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + 60
            while size_of(store) < number * 16_000_000 and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(stopped)
            _, said = process.communicate(timeout=60)
        assert process.returncode == (-9 if stopped is signal.SIGKILL else 130)
    assert b"the next one goes on from here" in said and b"Traceback" not in said
    assert run.rows("backup", str(store), "--list") == []
    left = list((store / ".uploads").iterdir())
    for each in left:
        os.utime(each, (0, 0))
    before = {each: each.stat().st_mtime_ns for each in (store / "pieces").rglob("*") if each.is_file()}
    assert before
    (taken,) = run.rows("backup", str(store), "--path", paths(cluster))
    assert all(each.stat().st_mtime_ns == modified for each, modified in before.items())
    assert taken["kept_bytes"] == sum(each.stat().st_size for each in before)
    assert run("backup", str(store), "--verify").status == 0
    assert not list((store / "unfinished").iterdir())
    assert not any(each.exists() for each in left)


def test_a_damaged_piece_is_named(cluster: Cluster, run: DailyCommand, store: Path) -> None:
    cluster.create_topic("small")
    fill(cluster, "small", 5, RECORD)
    run.done("backup", str(store), "--path", paths(cluster))
    piece = max((store / "pieces").rglob("*"), key=lambda each: each.stat().st_size if each.is_file() else 0)
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.write_bytes(data)
    said = run("backup", str(store), "--verify")
    assert said.status == 1 and piece.name in said.out and "1 damaged or missing" in said.out


def test_each_mistake_is_one_sentence(cluster: Cluster, run: DailyCommand, store: Path, tmp_path: Path) -> None:
    given = paths(cluster)

    def refused(status: int, *words: str) -> str:
        said = run("backup", *words)
        assert said.status == status, said
        return said.failure

    missing = tmp_path / "missing"
    assert "does not exist, or is not mounted: make it first" in refused(3, str(missing), "--path", given)
    assert "is not a directory" in refused(1, str(store), "--path", str(missing))
    assert "there are no backups here" in refused(3, str(store), "--list")
    assert "there are no backups here" in refused(3, str(store), "--verify")
    assert "no node has formatted" in refused(1, str(store), "--path", str(tmp_path))
    assert "leave out --bootstrap-server" in refused(2, str(store), "--path", given, "-b", "127.0.0.1:1")
    assert "no broker answers at 127.0.0.1:1" in refused(5, str(store), "-b", "127.0.0.1:1")
    assert "--bootstrap-controller x is not" in refused(2, str(store), "--bootstrap-controller", "x")
    assert "--keep 0 is not a number above 0" in refused(2, str(store), "--path", given, "--keep", "0")
    assert not list(store.iterdir())

    (store / "photo").write_bytes(b"cat")
    assert "other objects" in refused(3, str(store), "--path", given)
    assert [each.name for each in store.iterdir()] == ["photo"]
    (store / "photo").unlink()

    run.done("backup", str(store), "--path", given)
    with Cluster(memory=False) as other:
        other.create_topic("t")
        said = refused(1, str(store), "--path", paths(other))
    assert "the backups here are of the cluster" in said and "a store of its own" in said
    assert "no backup x" in refused(3, str(store), "--verify", "x")
    (manifest,) = (store / "backups").iterdir()
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert f"backups/{manifest.name} is not JSON" in refused(1, str(store), "--verify")
