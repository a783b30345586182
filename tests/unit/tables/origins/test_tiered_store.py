"""Remote segments without a broker, alone and joined with log directories: the rows of the local log."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.meta_properties import MetaProperties, write_meta_properties
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.segment_listing import ListedSegment
from moldau.storage.tiered.directory_storage import DirectoryStorage
from moldau.storage.tiered.port import CorruptObject
from moldau.tables.decoding.record_columns import record_batches
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.options.read_options import parse_options
from moldau.tables.origins.blocking_storage import BlockingStorage
from moldau.tables.origins.tiered_listing import TieredSegment, offset_ranges_of
from moldau.tables.origins.tiered_partition import TieredPartition
from moldau.tables.origins.tiered_segments import TieredSegments
from moldau.tables.origins.tiered_store import TieredStore
from moldau.tables.planning.planner import Plan, Planner
from moldau.tables.refusals import ClusterMismatch, DataLost, Refused
from tests.support.s3_server import CREDENTIALS, S3Server, bucket_of
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tiered_copy import CLUSTER, PARTITION, copy_sealed, copy_segment, tiered_directory
from tests.support.transactional_log import TransactionalLog, transactional_logs

pytestmark = pytest.mark.slow

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
COLUMNS = ("offset", "key", "value", "timestamp", "timestampType", "headers")
Rows = list[dict[str, object]]


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A partition of 1,000 records in some ten segments."""
    directory = tmp_path / "local"
    directory.mkdir()
    write_partition(directory, mixed_batches(200, 5))
    write_checkpoints(directory, {("t", 0): 1000})
    return directory


@pytest.fixture
def tier(tmp_path: Path, local: Path) -> Path:
    tiered_directory(tmp_path / "tier", local)
    return tmp_path / "tier"


def planned(path: object, **options: str) -> Plan:
    return Planner(LocalFiles(), parse_options({"path": str(path), "subscribe": "t", **options})).plan()


def rows_of(plan: Plan) -> Rows:
    slices = [each for task in plan.tasks for each in task]
    return [row for each in slices for batch in record_batches(each, COLUMNS) for row in batch.to_pylist()]


def drop_first(local: Path, count: int) -> int:
    """What local retention does: the first segments go. Where the local log then begins."""
    logs = sorted((local / "t-0").glob("*.log"))
    for log in logs[:count]:
        for file in log.parent.glob(f"{log.stem}.*"):
            file.unlink()
    return int(logs[count].stem)


def test_the_rows_are_those_of_the_sealed_segments(local: Path, tier: Path) -> None:
    everything = rows_of(planned(local))
    end = int(max((local / "t-0").glob("*.log")).stem)
    plan = planned(tier)
    assert [(each.start_offset, each.end_offset) for each in plan.ranges] == [(0, end)]
    assert rows_of(plan) == everything[:end]
    assert rows_of(planned(f"file://{tier}", minPartitions="40")) == everything[:end]
    assert len(planned(tier, minPartitions="40").tasks) > 20


def test_an_index_that_was_requested_before_is_not_requested_again(tier: Path) -> None:
    (partition,) = TieredStore(StoreAddress(str(tier))).open([("t", 0)])
    segment = partition.segments[0]
    wanted = (segment, segment.start_offset, segment.end_offset, segment.size // 3)
    cuts = partition.cuts(*wanted)
    assert len(cuts) > 1
    partition.start_cuts(*wanted)
    assert isinstance(partition, TieredPartition)
    (started,) = partition._started.values()
    wait(started)
    shutil.rmtree(tier / "topics")
    assert partition.cuts(*wanted) == cuts
    with pytest.raises(FileNotFoundError):
        partition.cuts(*wanted)


def test_a_named_topic_is_found_without_the_others_and_its_lack_names_them(tier: Path) -> None:
    (topic,) = (tier / "topics").iterdir()
    shutil.copytree(topic, topic.with_name(topic.name.replace("t.", "u.")))
    address = StoreAddress(str(tier))
    assert TieredStore(address, topics=["t"]).partitions().keys() == {("t", 0)}
    assert TieredStore(address).partitions().keys() == {("t", 0), ("u", 0)}
    assert TieredStore(address, topics=["t", "v"]).partitions().keys() == {("t", 0), ("u", 0)}
    with pytest.raises(Refused, match="no partition of v is in the places that are read, only of t, u"):
        planned(tier, subscribe="v")


def test_two_topics_of_one_name_do_not_hide_the_others(tier: Path) -> None:
    (segment, *_) = (tier / "topics").rglob("*.manifest.json")
    other = Path(str(segment).replace(uuid_text(PARTITION.topic_id), uuid_text(bytes(16))))
    other.parent.mkdir(parents=True)
    shutil.copy(segment, other)
    store = TieredStore(StoreAddress(str(tier)))
    assert store.partitions().keys() == {("t", 0)} and store.open([("u", 0)]) == []
    with pytest.raises(Refused, match=r"has two topics named t, A{22} and AAEC"):
        store.open([("t", 0)])


def test_each_offset_is_read_where_it_is_cheapest(local: Path, tier: Path) -> None:
    everything = rows_of(planned(local))
    local_start = drop_first(local, 3)
    plan = planned(f"{tier},{local}")
    assert rows_of(plan) == everything
    remote = [each for task in plan.tasks for each in task if isinstance(each.source, TieredSegments)]
    assert max(each.segment.end_offset for each in remote) == local_start


def test_records_before_the_log_start_are_not_read_from_the_tier(local: Path, tier: Path) -> None:
    everything = rows_of(planned(local))
    drop_first(local, 3)
    write_checkpoints(local, {("t", 0): 1000}, {("t", 0): 17})
    assert rows_of(planned(f"{local},{tier}")) == everything[17:]


def test_ranges_and_times_are_found_by_the_indexes(local: Path, tier: Path) -> None:
    everything = rows_of(planned(local))
    end = int(max((local / "t-0").glob("*.log")).stem)
    drawn = Random(7)
    for _ in range(60):
        start, after = sorted(drawn.sample(range(end + 1), 2))
        asked = {
            "startingOffsets": json.dumps({"t": {"0": start}}),
            "endingOffsets": json.dumps({"t": {"0": after}}),
            "minPartitions": str(drawn.choice([1, 9])),
        }
        assert rows_of(planned(tier, **asked)) == everything[start:after]
        time = str(1_600_000_000_000 + start * 37)
        asked = {"startingTimestamp": time, "startingOffsetsByTimestampStrategy": "latest"}
        found, expected = planned(tier, **asked).ranges[0], planned(local, **asked).ranges[0]
        assert found.start_offset == min(expected.start_offset, end)


@settings(max_examples=60, deadline=None)
@given(transactional_logs(), st.data())
def test_read_committed_over_both_tiers(log: TransactionalLog, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        local, tier = Path(name) / "local", Path(name) / "tier"
        local.mkdir()
        write_partition(local, [each.data for each in log.batches], config=SMALL)
        write_checkpoints(local, {("t", 0): log.end_offset})
        sealed = tiered_directory(tier, local)
        committed = {"kafka.isolation.level": "read_committed"}
        if sealed:
            end = sealed[-1].next_base_offset
            assert end is not None
            (partition,) = TieredStore(StoreAddress(str(tier))).open([("t", 0)])
            assert partition.last_stable_offset() == log.last_stable_offset(end)
            assert [row["offset"] for row in rows_of(planned(tier, **committed))] == log.committed(end)
        drop_first(local, data.draw(st.integers(0, len(sealed))))
        found = [row["offset"] for row in rows_of(planned(f"{local},{tier}", **committed))]
        assert found == log.committed(log.end_offset)


def test_a_replaced_segment_is_not_read(tmp_path: Path, local: Path) -> None:
    """The second generation of the first segment has other records: those of a log that was cleaned."""
    cleaned = tmp_path / "cleaned"
    cleaned.mkdir()
    write_partition(cleaned, mixed_batches(200, 5, gap=0))
    sealed = tiered_directory(tmp_path / "tier", local)
    merged = ListedSegment(f"{cleaned}/t-0", sealed[0].base_offset, sealed[0].size, sealed[0].next_base_offset)
    storage = DirectoryStorage(str(tmp_path / "tier"), Random(1))
    new_id = bytes([1, *bytes(15)])
    asyncio.run(copy_segment(storage, merged, segment_id=new_id, ancestors=(bytes([*bytes(15), 1]),)))
    (partition,) = TieredStore(StoreAddress(str(tmp_path / "tier"))).open([("t", 0)])
    assert len(partition.segments) == len(sealed)
    assert "AQAAAAAAAAAAAAAAAAAAAA" in partition.segments[0].name


def segment(number: int, start: int, last: int, *epochs: tuple[int, int]) -> TieredSegment:
    starts = tuple(EpochStart(*each) for each in epochs) or (EpochStart(0, start),)
    return TieredSegment(str(number), bytes([*bytes(15), number]), start, last, 100, 0, starts, False, 0, ())


def test_where_segments_overlap_the_higher_leader_epoch_is_read() -> None:
    old, new, after = segment(1, 0, 99), segment(2, 50, 149, (1, 50)), segment(3, 150, 199, (1, 150))
    stretches = [(each.start_offset, each.end_offset, each.segment) for each in offset_ranges_of([old, new, after])]
    assert stretches == [(0, 50, old), (50, 150, new), (150, 200, after)]
    inner = segment(4, 20, 29, (2, 20))
    stretches = [(each.start_offset, each.end_offset, each.segment) for each in offset_ranges_of([old, inner])]
    assert stretches == [(0, 20, old), (20, 30, inner), (30, 100, old)]


def test_what_is_wrong_has_a_name(tmp_path: Path, local: Path, tier: Path) -> None:
    with pytest.raises(Refused, match=r"not a tiered storage"):
        TieredStore(StoreAddress(str(tmp_path)))
    plan = planned(tier)
    (tier / plan.tasks[0][0].path).unlink()
    with pytest.raises(DataLost, match=r"t-0, offsets 0 to .* was deleted after the read was planned"):
        rows_of(plan)
    index = next(tier.glob("topics/t.*/0/*.index"))
    index.write_bytes(bytes(index.stat().st_size))
    with pytest.raises(CorruptObject, match=r"\.index does not have the size and the checksum"):
        planned(tier, minPartitions="100")
    write_meta_properties(LocalFiles(), str(local), MetaProperties("another", 1, None))
    with pytest.raises(ClusterMismatch):
        planned(f"{local},{tier}")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    opened = S3Server()
    yield opened
    opened.close()


def test_an_object_store_gives_the_same_rows(server: S3Server, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS["secret_access_key"])
    sealed = copy_sealed(bucket_of(server, "spark"), local)
    asked = {"moldau.tiered.storage.endpoint": server.endpoint, "moldau.tiered.storage.region": "us-east-1"}
    everything = rows_of(planned(local))
    end = sealed[-1].next_base_offset
    assert rows_of(planned("s3://spark/pre/fix", **asked)) == everything[:end]
    drop_first(local, 2)
    assert rows_of(planned(f"s3://spark/pre/fix,{local}", **asked)) == everything


def test_the_cluster_is_that_of_the_storage(tier: Path) -> None:
    storage = BlockingStorage(DirectoryStorage(str(tier), Random(1)))
    assert TieredStore(StoreAddress(str(tier)), storage).cluster_id == CLUSTER
    storage.close()


def test_the_thread_of_a_storage_ends_with_the_last_call(tier: Path) -> None:
    before = {*threading.enumerate()}
    storage = BlockingStorage(DirectoryStorage(str(tier), Random(1)))
    (thread,) = {*threading.enumerate()} - before
    listing = storage.start_listing_directories([""])
    del storage
    assert listing.result(timeout=60)
    thread.join(timeout=60)
    assert not thread.is_alive()
