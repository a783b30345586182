"""Restoring: the directories that are written, what stays out of them, and what is refused with nothing changed."""

from __future__ import annotations

import asyncio
import errno
import json
from dataclasses import replace
from random import Random

import pytest

from moldau.backup.cluster_image import RestorePlacement
from moldau.backup.layout import metadata_key, piece_key
from moldau.backup.manifest import (
    BackupManifest,
    MetadataPiece,
    PartitionBackup,
    PartitionKey,
    Piece,
    TopicBackup,
    decode_manifest,
)
from moldau.backup.moment import restore_moment
from moldau.backup.report import RestoreReport
from moldau.backup.restoring import RestoreRefused, RestoreRequest, RestoreTarget, restore_backup
from moldau.coordinator.group.records import CommittedOffset, OffsetChange, offset_record, read_offset
from moldau.coordinator.share_coordinator.records import ShareStateChange
from moldau.coordinator.share_coordinator.records import change_of as change_of_share
from moldau.coordinator.share_coordinator.records import record_of as share_record_of
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateBatch, StateUpdate, updated_state
from moldau.coordinator.transaction.records import change_of
from moldau.kraft.snapshot.batches import load_snapshot
from moldau.kraft.snapshot.names import snapshots_in
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.erase_orders import Run, erase_order_batch, new_erase_order
from moldau.protocol.primitives import crc32c
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.storage.checkpoints.partition_metadata import read_topic_id
from moldau.storage.checkpoints.text_checkpoint import read_offsets
from moldau.storage.files.memory_files import MemoryFiles
from moldau.storage.files.port import FileSystem
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.tiered.port import CorruptObject
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.storage import SimulatedBucket
from tests.support.transaction_histories import OFFSETS, START_MS, Vector, World, ask, batches_below
from tests.unit.backup.logs import CLUSTER, NODES, metadata_of
from tests.unit.backup.settled import Restored
from tests.unit.storage.tiered.storages import simulated

STATES = "__transaction_state"
SHARES = "__share_group_state"
TOPIC_IDS = {name: bytes([number + 1]) * 16 for number, name in enumerate(("in", "out", OFFSETS[0], STATES, SHARES))}
DIRECTORY = "/restored"
WHOLE = RestoreRequest()
TopicPartition = tuple[str, int]


def memory() -> MemoryFiles:
    return MemoryFiles(lambda: 0)


class Store:
    """A store with one backup."""

    def __init__(self, logs: dict[TopicPartition, list[bytes]], began_ms: int, asked_ms: int) -> None:
        self.bucket = SimulatedBucket()
        names = sorted({name for name, _ in logs})
        metadata = metadata_of(logs, TOPIC_IDS)
        piece = MetadataPiece(50, 3, len(metadata), crc32c(metadata, 0))
        self.bucket.store(metadata_key(piece), metadata)
        topics = tuple(
            TopicBackup(
                name,
                TOPIC_IDS[name],
                tuple(self._partition(*key, batches) for key, batches in sorted(logs.items()) if key[0] == name),
            )
            for name in names
        )
        self.manifest = BackupManifest("20231114T221320Z-1", CLUSTER, began_ms, asked_ms, asked_ms, piece, topics)
        decode_manifest("manifest", self.manifest.encode())

    def _partition(self, topic: str, index: int, batches: list[bytes]) -> PartitionBackup:
        pieces = []
        end = 0
        for start in range(0, len(batches), 7):
            data = b"".join(batches[start : start + 7])
            first, end = end, parse_header(batches[min(start + 6, len(batches) - 1)]).next_offset
            stamp = max(header.max_timestamp for _, header in iterate_batches(data))
            piece = Piece(first, end, len(data), crc32c(data, 0), stamp)
            self.bucket.store(piece_key(PartitionKey(topic, TOPIC_IDS[topic], index), piece), data)
            pieces.append(piece)
        return PartitionBackup(index, 0, end, 2, tuple(pieces))

    def restore_backup(
        self, request: RestoreRequest = WHOLE, files: FileSystem | None = None
    ) -> tuple[RestoreReport, FileSystem]:
        files = files if files is not None else memory()
        storage, _ = simulated(bucket=self.bucket)
        target = RestoreTarget(files, DIRECTORY, Random(7).randbytes)
        now_ms = self.manifest.ended_ms
        return asyncio.run(restore_backup(storage, self.manifest, request, target, now_ms)), files


def history(seed: int, pause: int = 12, *, asks_first: bool = False) -> tuple[World, Vector, Store]:
    world = World(seed)
    world.run(250)
    vector = ask(world, pause)
    world.run(30)
    logs = {key: list(batches_below(world.logs[key], end)) for key, end in vector.ends.items()}
    logs |= {(STATES, index): list(batches_below(world.states[index], end)) for index, end in vector.states.items()}
    store = Store(logs, vector.first_ms, vector.last_ms)
    if asks_first:
        store.manifest = replace(
            store.manifest,
            transaction_log_ends={index: end for index, end in vector.decided.items() if end is not None},
        )
        return world, vector, store
    return world, vector._replace(decided=dict.fromkeys(vector.states)), store


def stored_batches(files: FileSystem, directory: str) -> list[bytes]:
    """The batches of a log in order of its segments."""
    found = []
    for name in files.list_directory(directory):
        if name.endswith(".log"):
            data = files.read(f"{directory}/{name}")
            found += [data[at : at + header.size] for at, header in iterate_batches(data)]
    return found


@pytest.mark.parametrize("asks_first", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_replica_has_the_settled_log(seed: int, asks_first: bool) -> None:
    world, vector, store = history(seed, asks_first=asks_first)
    expected = Restored(world, vector, restore_moment(store.manifest, None), {})

    report, files = store.restore_backup()

    assert len(report.settlement.aborted_transactions) == len(expected.settlement.aborted_transactions)
    for (topic, index), batches in expected.batches.items():
        for node in NODES:
            restored = stored_batches(files, f"{DIRECTORY}/{node}/{topic}-{index}")
            assert restored[: len(batches)] == batches
            assert restored[len(batches) :] == [] or topic == OFFSETS[0]
            assert read_topic_id(files, f"{DIRECTORY}/{node}/{topic}-{index}") == TOPIC_IDS[topic]


@pytest.mark.parametrize("seed", range(8))
def test_no_log_that_was_read_keeps_its_files_open(seed: int) -> None:
    """Markers and offsets of groups are appended to logs whose files were closed."""
    disk = SimulatedDisk(seed)
    disk.faults.descriptors_max = len(NODES)
    _, _, store = history(seed, pause=40)
    report, files = store.restore_backup(files=disk)
    assert report.partition_count > 1 and disk.open_count == 0
    _, in_memory = store.restore_backup()
    paths = [path for path in tree(files) if path.endswith(".log")]
    assert [files.read(path) for path in paths] == [in_memory.read(path) for path in paths]
    assert tree(files) == tree(in_memory)


@pytest.mark.parametrize("seed", range(8))
def test_the_states_that_a_coordinator_loads_are_final(seed: int) -> None:
    world, vector, store = history(seed)
    expected = Restored(world, vector, restore_moment(store.manifest, None), {}).final_states()

    _, files = store.restore_backup()

    loaded = {}
    for index in vector.states:
        for batch in stored_batches(files, f"{DIRECTORY}/1/{STATES}-{index}"):
            for record in records_of(batch):
                change = change_of(record)
                assert change is not None and change.value is not None
                loaded[change.transactional_id] = change.value._replace(last_epoch=-1)
    assert loaded == {name: state._replace(last_epoch=-1) for name, state in expected.items()}


def test_the_directories_are_those_of_nodes_that_were_formatted() -> None:
    _, _, store = history(1)
    _, files = store.restore_backup()

    assert files.list_directory(DIRECTORY) == ["1", "2"]
    identities = [read_meta_properties(files, f"{DIRECTORY}/{node}") for node in NODES]
    assert [each.node_id for each in identities if each is not None] == [1, 2]
    assert {each.cluster_id for each in identities if each is not None} == {CLUSTER}
    directory_ids = {each.node_id: each.directory_id for each in identities if each is not None}
    metadata = f"{DIRECTORY}/2/__cluster_metadata-0"
    (name,) = files.list_directory(metadata)
    (snapshot_id,) = snapshots_in([name])
    loaded = load_snapshot(files.read(f"{metadata}/{name}"), snapshot_id)
    assert snapshot_id == (50, 3) and loaded.quorum.voters is not None
    assert loaded.quorum.voters.by_id[1].directory_id == directory_ids[1]
    partition = loaded.replay.image.topics.partition("in", 0)
    assert partition is not None
    assert partition.directories == (directory_ids[1], directory_ids[2])
    assert partition.leader_epoch == 2, "that of the last batch, which is above that of the metadata"


def test_the_coordinators_next_epoch_is_above_that_of_every_marker() -> None:
    """The markers of the history have the coordinator's epoch 3, its log in this backup ends in epoch 3 too: so take a
    backup whose log of states is empty."""
    world, _, store = history(1)
    logs = {key: log.batches for key, log in world.logs.items()}
    store = Store({**logs, (STATES, 0): []}, store.manifest.began_ms, store.manifest.ends_known_ms)
    _, files = store.restore_backup()

    name = files.list_directory(f"{DIRECTORY}/1/__cluster_metadata-0")[0]
    (snapshot_id,) = snapshots_in([name])
    image = load_snapshot(files.read(f"{DIRECTORY}/1/__cluster_metadata-0/{name}"), snapshot_id).replay.image
    partition = image.topics.partition(STATES, 0)
    assert partition is not None and partition.leader_epoch == 3


def test_checkpoints_name_the_ends() -> None:
    _, vector, store = history(1)
    report, files = store.restore_backup()

    ends = read_offsets(files, f"{DIRECTORY}/1", "replication-offset-checkpoint")
    appended = {
        partition: len(changes.appended_markers)
        for partition, changes in report.settlement.marker_changes_by_log.items()
    }
    for partition, end in vector.ends.items():
        if partition != OFFSETS:
            assert ends[partition] == end + appended.get(partition, 0)


def commit(group: str, topic: str, partition: int, offset: int, *, at: int) -> bytes:
    record = offset_record(
        OffsetChange(group, topic, partition, CommittedOffset(offset, 1, "note", START_MS)), START_MS
    )
    return build_batch([record], base_offset=at)


def plain(*stamps: int) -> list[bytes]:
    return [build_batch([Record(None, b"v", stamp)], base_offset=at) for at, stamp in enumerate(stamps)]


def offsets_in(files: FileSystem) -> dict[tuple[str, str, int], CommittedOffset | None]:
    found: dict[tuple[str, str, int], CommittedOffset | None] = {}
    for batch in stored_batches(files, f"{DIRECTORY}/1/__consumer_offsets-0"):
        for record in records_of(batch):
            change = read_offset(record)
            found[change.group_id, change.topic, change.partition] = change.value
    return found


def small() -> Store:
    """Three records of `in`, one each second; group g has read two of them, h three, x all of a topic that is gone."""
    logs = {
        ("in", 0): plain(START_MS, START_MS + 1000, START_MS + 2000),
        OFFSETS: [
            commit("g", "in", 0, 2, at=0),
            commit("h", "in", 0, 3, at=1),
            commit("x", "gone", 0, 9, at=2),
            commit("y", "in", 0, 4, at=3),
        ],
    }
    return Store(logs, START_MS + 5000, START_MS + 5001)


def test_offsets_of_groups_beyond_the_end_go_back_to_it() -> None:
    report, files = small().restore_backup()

    found = offsets_in(files)
    assert found["g", "in", 0] == CommittedOffset(2, 1, "note", START_MS)
    assert found["h", "in", 0] == CommittedOffset(3, 1, "note", START_MS)
    assert found["y", "in", 0] == CommittedOffset(3, -1, "note", START_MS)
    assert found["x", "gone", 0] is None
    moved = [(each.group_id, each.before.offset, each.after) for each in report.moved_offsets]
    assert sorted(moved) == [("x", 9, None), ("y", 4, 3)]


def test_a_time_cuts_every_log_before_the_first_batch_that_is_later() -> None:
    report, files = small().restore_backup(RestoreRequest(time_ms=START_MS + 1500))

    assert len(stored_batches(files, f"{DIRECTORY}/2/in-0")) == 2
    (cut,) = report.cut_logs
    assert cut == ("in", 0, 2, 3, START_MS + 2000)
    found = offsets_in(files)
    assert found["g", "in", 0] == CommittedOffset(2, 1, "note", START_MS)
    assert found["h", "in", 0] == CommittedOffset(2, -1, "note", START_MS)


def shared(*changes: ShareStateChange) -> list[bytes]:
    """A log of share states, a batch for each record."""
    return [build_batch([share_record_of(each, START_MS)], base_offset=at) for at, each in enumerate(changes)]


def share_states_in(files: FileSystem) -> dict[str, ShareState]:
    """The states that a share coordinator loads, by group."""
    states: dict[str, ShareState] = {}
    for batch in stored_batches(files, f"{DIRECTORY}/1/{SHARES}-0"):
        for record in records_of(batch):
            change = change_of_share(record)
            assert change is not None and change.value is not None
            group, value = change.key.group_id, change.value
            states[group] = value if isinstance(value, ShareState) else updated_state(states[group], value)
    return states


def test_share_groups_beyond_the_end_go_back_to_it() -> None:
    """At the requested time the share groups had delivered records whose producers' clocks were ahead."""
    ahead, within, half = (ShareKey(group, TOPIC_IDS["in"], 0) for group in ("ahead", "within", "half"))
    logs = {
        ("in", 0): plain(START_MS, START_MS + 1000, START_MS + 2000, START_MS + 2000),
        (SHARES, 0): shared(
            ShareStateChange(ahead, ShareState(4, 1, 7, 1, 0)),
            ShareStateChange(within, ShareState(2, 1, 7, 1, 1, (StateBatch(1, 1, 2, 1),))),
            ShareStateChange(half, ShareState(0, 3, 7, 0, 4, (StateBatch(0, 2, 2, 1), StateBatch(3, 3, 4, 5)))),
            ShareStateChange(ahead, StateUpdate(4, 7, 4, 0)),
        ),
    }
    report, files = Store(logs, START_MS + 5000, START_MS + 5001).restore_backup(
        RestoreRequest(time_ms=START_MS + 1500)
    )

    found = share_states_in(files)
    assert found["within"] == ShareState(2, 1, 7, 1, 1, (StateBatch(1, 1, 2, 1),))
    assert found["ahead"][:6] == (5, 1, 7, 2, 0, ())
    assert found["half"][:6] == (1, 3, 7, 0, 2, (StateBatch(0, 1, 2, 1),))
    cut = report.as_json_fields()["cut_share_states"]
    assert isinstance(cut, list)
    assert sorted((each["group"], each["from"], each["to"], each["end_offset"]) for each in cut) == [
        ("ahead", 4, 2, 2),
        ("half", 0, 0, 2),
    ]
    (line,) = (each for each in report.as_sentences() if each.startswith("share group ahead"))
    assert line.endswith("what it had delivered from offset 2 on is forgotten")


def test_a_backup_of_one_moment_changes_no_share_state() -> None:
    key = ShareKey("g", TOPIC_IDS["in"], 0)
    logs = {
        ("in", 0): plain(START_MS, START_MS),
        (SHARES, 0): shared(ShareStateChange(key, ShareState(0, 1, 7, 2, 0))),
    }
    report, files = Store(logs, START_MS + 5000, START_MS + 5001).restore_backup()
    assert not report.cut_share_states
    assert stored_batches(files, f"{DIRECTORY}/2/{SHARES}-0") == logs[SHARES, 0]


def test_offsets_of_groups_follow_a_topic_to_its_new_name() -> None:
    placement = RestorePlacement(renames={"in": "gone"})
    report, files = small().restore_backup(RestoreRequest(placement=placement))

    found = offsets_in(files)
    assert {key: None if value is None else value.offset for key, value in found.items()} == {
        ("g", "in", 0): None,
        ("h", "in", 0): None,
        ("y", "in", 0): None,
        ("g", "gone", 0): 2,
        ("h", "gone", 0): 3,
        ("y", "gone", 0): 3,
        ("x", "gone", 0): None,
    }
    assert found["g", "gone", 0] == CommittedOffset(2, 1, "note", START_MS), "nothing else of the offset changes"
    assert any("group h, in-0: offset 3 is offset 3 of gone-0" in line for line in report.as_sentences())
    fields = report.as_json_fields()["moved_group_offsets"]
    assert isinstance(fields, list) and {each.get("renamed_to") for each in fields} == {"gone", None}


def test_a_restored_log_carries_its_erase_orders_out_again() -> None:
    """The pieces are from before the erasure, and a later backup has taken them over."""
    order = new_erase_order(b"o" * 16, b"h" * 32, [Run(1, 1)])
    batch = bytearray(erase_order_batch(order, START_MS))
    batch[:8] = (3).to_bytes(8, "big")
    logs = {("in", 0): [*plain(START_MS, START_MS, START_MS), bytes(batch)]}
    _, files = Store(logs, START_MS + 5000, START_MS + 5001).restore_backup()

    log = Log.open(files, f"{DIRECTORY}/1/in-0", LogConfig(), now_ms=START_MS)
    assert log.erase_orders.offsets == [3]
    assert log.erase_orders.hidden_runs == (Run(1, 1),), "no consumer reads it before it is erased"
    log.close(START_MS, clean=True)


def test_a_batch_from_the_future_cuts_nothing() -> None:
    store = Store({("in", 0): plain(START_MS, START_MS + 10**10, START_MS + 1)}, START_MS + 5000, START_MS + 5001)
    _, files = store.restore_backup(RestoreRequest(time_ms=START_MS + 500))
    assert len(stored_batches(files, f"{DIRECTORY}/1/in-0")) == 3


def test_a_log_whose_records_are_all_later_ends_at_its_start() -> None:
    store = Store({("in", 0): plain(START_MS + 1000), ("out", 0): plain(START_MS)}, START_MS + 5000, START_MS + 5001)
    _, files = store.restore_backup(RestoreRequest(time_ms=START_MS + 500))
    assert files.list_directory(f"{DIRECTORY}/1/in-0") == ["00000000000000000000.log", "partition.metadata"]
    assert files.file_size(f"{DIRECTORY}/1/in-0/00000000000000000000.log") == 0


def test_a_time_before_everything() -> None:
    check_refused(small(), RestoreRequest(time_ms=START_MS - 500), "nothing is as old as 2023-11-14T22:13:19.500Z")


def test_an_empty_log_keeps_its_offset() -> None:
    store = small()
    topic = store.manifest.topics[1]
    empty = PartitionBackup(0, 700, 700, -1, ())
    store.manifest = replace(store.manifest, topics=(store.manifest.topics[0], topic._replace(partitions=(empty,))))
    _, files = store.restore_backup()
    assert "00000000000000000700.log" in files.list_directory(f"{DIRECTORY}/1/in-0")


def test_a_log_that_begins_within_its_first_piece_says_so() -> None:
    store = small()
    topic = store.manifest.topics[1]
    begun = topic.partitions[0]._replace(start_offset=1)
    store.manifest = replace(store.manifest, topics=(store.manifest.topics[0], topic._replace(partitions=(begun,))))
    _, files = store.restore_backup()
    assert read_offsets(files, f"{DIRECTORY}/2", "log-start-offset-checkpoint") == {("in", 0): 1}


def test_some_topics_under_another_name_on_one_node() -> None:
    placement = RestorePlacement(single_node=5, topics=frozenset({"in"}), renames={"in": "in.before"})
    report, files = small().restore_backup(RestoreRequest(placement=placement))

    assert files.list_directory(DIRECTORY) == ["5"]
    assert "in.before-0" in files.list_directory(f"{DIRECTORY}/5")
    assert "__consumer_offsets-0" not in files.list_directory(f"{DIRECTORY}/5")
    assert (report.topic_count, report.nodes) == (1, [5])


def test_the_report_has_every_change_as_json_and_as_text() -> None:
    _, _, store = history(4, pause=40)
    report, _ = store.restore_backup()

    fields = json.loads(json.dumps(report.as_json_fields()))
    assert fields["backup_id"] == store.manifest.backup_id
    assert len(fields["undone_transactions"]) == len(report.settlement.aborted_transactions) > 0
    assert len(fields["appended_markers"]) == len(report.settlement.appended_markers) > 0
    text = "\n".join(report.as_sentences())
    for undone in report.settlement.aborted_transactions:
        assert f"transactional id {undone.decision.transactional_id}: the transaction that was committed at" in text


def test_a_dry_run_reports_the_same_and_writes_nothing() -> None:
    _, _, store = history(4, pause=40)
    written, _ = store.restore_backup()
    storage, _ = simulated(bucket=store.bucket)

    report = asyncio.run(restore_backup(storage, store.manifest, RestoreRequest(), None, store.manifest.ended_ms))

    assert report.as_json_fields() == written.as_json_fields()


# What is refused


def check_refused(store: Store, request: RestoreRequest, message: str, files: FileSystem | None = None) -> None:
    """The restore is refused with this message, and changes nothing."""
    files = files if files is not None else memory()
    before = tree(files)
    with pytest.raises((RestoreRefused, CorruptObject), match=message):
        store.restore_backup(request, files)
    assert tree(files) == before


def tree(files: FileSystem, path: str = DIRECTORY) -> list[str]:
    if not files.exists(path):
        return []
    names = [f"{path}/{name}" for name in files.list_directory(path)]
    return names + [found for name in names if files.is_directory(name) for found in tree(files, name)]


def test_a_directory_that_is_not_empty() -> None:
    files = memory()
    files.make_directories(f"{DIRECTORY}/1")
    check_refused(small(), RestoreRequest(), "is not empty", files)


class NodeTwoStays(MemoryFiles):
    """The directory of the second node cannot be moved into place."""

    def rename(self, old: str, new: str) -> None:
        if new.endswith("/2"):
            raise OSError(errno.EIO, "the disk fails", new)
        super().rename(old, new)


def test_a_failure_between_two_nodes_leaves_neither() -> None:
    files = NodeTwoStays(lambda: 0)
    files.make_directories(DIRECTORY)
    with pytest.raises(OSError, match="the disk fails"):
        small().restore_backup(files=files)
    assert files.list_directory(DIRECTORY) == []


def test_what_an_ended_restore_has_left_is_removed() -> None:
    files = memory()
    files.make_directories(f"{DIRECTORY}/.restoring/1/in-0")
    small().restore_backup(files=files)
    assert files.list_directory(DIRECTORY) == ["1", "2"]


def test_topics_that_the_backup_does_not_have() -> None:
    check_refused(
        small(), RestoreRequest(placement=RestorePlacement(topics=frozenset({"other"}))), "has no topic other"
    )


@pytest.mark.parametrize(
    ("renames", "message"),
    [
        ({"other": "a"}, "has no topic other"),
        ({"__consumer_offsets": "b"}, "is to be renamed, and is not restored"),
        ({"in": "a/b"}, "in cannot be renamed: Topic name is invalid"),
        ({"in": "__cluster_metadata"}, "__cluster_metadata is an internal topic"),
        ({"in": "__share_group_state"}, "__share_group_state is an internal topic"),
    ],
)
def test_names_that_cannot_be_given(renames: dict[str, str], message: str) -> None:
    placement = RestorePlacement(topics=frozenset({"in"}), renames=renames)
    check_refused(small(), RestoreRequest(placement=placement), message)


def test_two_topics_of_one_name() -> None:
    store = Store({("in", 0): plain(START_MS), ("out", 0): plain(START_MS)}, START_MS + 1000, START_MS + 1001)
    placement = RestorePlacement(renames={"in": "out"})
    check_refused(store, RestoreRequest(placement=placement), "two topics would have the name out")


def test_a_damaged_piece() -> None:
    store = small()
    (key, content), *_ = [each for each in store.bucket.contents().items() if "-00000000000000000003-" in each[0]]
    data = bytearray(content)
    data[70] ^= 1
    store.bucket.store(key, bytes(data))
    check_refused(store, RestoreRequest(), "checksum is wrong")
