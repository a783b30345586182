"""The small text files: what is written is Kafka's, what is read is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.checkpoints.leader_epochs import EpochStart, LeaderEpochs
from moldau.storage.checkpoints.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    directory_conflict,
    read_meta_properties,
    write_meta_properties,
)
from moldau.storage.checkpoints.partition_metadata import (
    CorruptPartitionMetadata,
    read_topic_id,
    uuid_text,
    write_topic_id,
)
from moldau.storage.checkpoints.text_checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from moldau.storage.directory.previous_run import read_clean_shutdown, remove_clean_shutdown, write_clean_shutdown
from moldau.storage.files.local_files import LocalFiles

FS = LocalFiles()
ID = bytes.fromhex("5287f81146794c21b40f92d7a376c903")


def test_offsets_are_written_as_kafka_does(tmp_path: Path) -> None:
    offsets = {("perf", 1): 11642, ("__transaction_state", 0): 0}
    write_offsets(FS, str(tmp_path), RECOVERY_POINT_CHECKPOINT, offsets)
    assert (tmp_path / RECOVERY_POINT_CHECKPOINT).read_text() == "0\n2\nperf 1 11642\n__transaction_state 0 0\n"
    assert read_offsets(FS, str(tmp_path), RECOVERY_POINT_CHECKPOINT) == offsets


def test_a_missing_or_empty_offset_checkpoint_has_no_offsets(tmp_path: Path) -> None:
    assert read_offsets(FS, str(tmp_path), RECOVERY_POINT_CHECKPOINT) == {}
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_bytes(b"")
    assert read_offsets(FS, str(tmp_path), RECOVERY_POINT_CHECKPOINT) == {}


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n",
        "0\n2\na 0 1\n",
        "0\n1\na 0 1\nb 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na x 1\n",
        "0\n2\na 0 1\na 0 2\n",
        "x\n0\n",
        "\xff\n",
        "0\n\u00c2\u00b2\na 0 1\na 1 1\n",  # a raised two, in UTF-8: a digit, but no number
        "0\n1\na 0 \u00c2\u00b2\n",
    ],
)
def test_a_damaged_offset_checkpoint_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptCheckpoint, match=RECOVERY_POINT_CHECKPOINT):
        read_offsets(FS, str(tmp_path), RECOVERY_POINT_CHECKPOINT)


def test_leader_epochs_are_written_as_kafka_does(tmp_path: Path) -> None:
    epochs = LeaderEpochs(FS, str(tmp_path), [])
    epochs.assign(0, 0)
    epochs.assign(3, 100)
    epochs.assign(3, 150)
    epochs.write()
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 100\n"
    assert LeaderEpochs.load(FS, str(tmp_path)).entries == [EpochStart(0, 0), EpochStart(3, 100)]


def test_a_new_epoch_takes_the_place_of_those_it_contradicts(tmp_path: Path) -> None:
    epochs = LeaderEpochs(FS, str(tmp_path), [EpochStart(1, 0), EpochStart(4, 50), EpochStart(5, 60)])
    epochs.assign(6, 50)
    assert epochs.entries == [EpochStart(1, 0), EpochStart(6, 50)]
    epochs.truncate_from_start(20)
    assert epochs.entries == [EpochStart(1, 20), EpochStart(6, 50)]
    assert epochs.end_offset_for(0, 99) == (0, 20)
    epochs.truncate_from_end(50)
    assert epochs.entries == [EpochStart(1, 20)] and epochs.latest_epoch == 1 and epochs.is_dirty


def test_a_log_that_starts_where_an_epoch_begins_has_no_earlier_epochs(tmp_path: Path) -> None:
    epochs = LeaderEpochs(FS, str(tmp_path), [EpochStart(1, 0), EpochStart(4, 50), EpochStart(5, 60)])
    epochs.truncate_from_start(50)
    assert epochs.entries == [EpochStart(4, 50), EpochStart(5, 60)] and epochs.is_dirty
    epochs.note_written()
    epochs.truncate_from_start(50)
    assert not epochs.is_dirty


def test_the_topic_id_is_written_as_kafka_does(tmp_path: Path) -> None:
    assert read_topic_id(FS, str(tmp_path)) is None
    write_topic_id(FS, str(tmp_path), ID)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: Uof4EUZ5TCG0D5LXo3bJAw"
    assert read_topic_id(FS, str(tmp_path)) == ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version: 0\ntopic_id: short",
        "topic_id: Uof4EUZ5TCG0D5LXo3bJAw",
        "version: 0\ntopic_id: " + "A" * 22,
    ],
)
def test_a_damaged_topic_id_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CorruptPartitionMetadata, match=r"partition\.metadata"):
        read_topic_id(FS, str(tmp_path))


def test_a_clean_shutdown_tells_the_broker_epoch_once(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert read_clean_shutdown(FS, directory) is None
    write_clean_shutdown(FS, directory, 110)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":110}'
    assert read_clean_shutdown(FS, directory) == 110
    remove_clean_shutdown(FS, directory)
    assert read_clean_shutdown(FS, directory) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"brokerEpoch":"x"}'])
def test_a_clean_shutdown_without_an_epoch_is_clean_all_the_same(tmp_path: Path, text: str) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(text)
    assert read_clean_shutdown(FS, str(tmp_path)) == -1


def test_meta_properties_come_back(tmp_path: Path) -> None:
    for cluster_id in ("oUT7gJcOQsmF9N3JMpD_8A", "a = b: #! \\ é €"):
        properties = MetaProperties(cluster_id, 7, ID)
        write_meta_properties(FS, str(tmp_path), properties)
        assert read_meta_properties(FS, str(tmp_path)) == properties


def test_meta_properties_of_apache_kafka_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 17:02:00 UTC 2026\ncluster.id=oUT7gJcOQsmF9N3JMpD_8A\n"
        f"directory.id={uuid_text(ID)}\nnode.id=1\nversion=1\n"
    )
    assert read_meta_properties(FS, str(tmp_path)) == MetaProperties("oUT7gJcOQsmF9N3JMpD_8A", 1, ID)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("broker.id=3\ncluster.id=x\n", "ZooKeeper era"),
        ("version=0\nbroker.id=3\n", "ZooKeeper era"),
        ("\x01\x02 junk", "damaged.*Put it back"),
        ("", "damaged.*Put it back"),
        ("version=2\ncluster.id=x\nnode.id=1\n", "later release"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=x\nnode.id=-1\n", "node.id '-1'"),
        ("version=1\ncluster.id=x\n", "node.id ''"),
        ("version=1\ncluster.id=x\nnode.id=\\u00b2\n", "node.id '\u00b2'"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=zzz\n", "not a uuid"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n", "reserved"),
    ],
)
def test_meta_properties_that_cannot_be_served_say_why(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(InvalidMetaProperties, match=says):
        read_meta_properties(FS, str(tmp_path))


def test_directories_of_one_node_agree() -> None:
    one = MetaProperties("c", 1, ID)
    assert directory_conflict([("/a", one), ("/b", MetaProperties("c", 1, ID[::-1]))]) is None
    assert "cluster d" in (directory_conflict([("/a", one), ("/b", MetaProperties("d", 1, None))]) or "")
    assert "node 2" in (directory_conflict([("/a", one), ("/b", MetaProperties("c", 2, None))]) or "")
    assert "copy" in (directory_conflict([("/a", one), ("/b", one)]) or "")
