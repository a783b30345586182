"""dump-log shows what is in the files of a log, one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack

import pytest

from moldau.broker.cli import main
from moldau.broker.config.internal_topics import RecordKind
from moldau.broker.console.decoding.record_contents import Json, contents_of
from moldau.protocol.compiler import encode
from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records import offsets
from moldau.storage.checkpoints.text_checkpoint import format_checkpoint
from tests.support.old_messages import old_segment
from tests.support.recorded_groups import groups_log, share_state_log

Lines = list[dict[str, object]]


def dump(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Lines]:
    status = main(["dump-log", *arguments])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Two batches: two records with lz4, then an abort marker."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    records = [Record(b"k", b"v", 1000, headers=(("h", b"x"),)), Record(None, b"\xff\x00", 2000)]
    path.write_bytes(
        build_batch(records, codec=Codec.LZ4)
        + end_transaction_marker(
            commits=False, producer_id=7, producer_epoch=1, coordinator_epoch=3, timestamp=5, base_offset=2
        )
    )
    return path


def test_a_segment_is_a_line_for_each_batch(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (first, second) = dump(capsys, str(segment))
    assert status == 0
    assert (first["type"], first["base_offset"], first["last_offset"], first["codec"]) == ("batch", 0, 1, "lz4")
    assert first["is_valid"] is True and first["position"] == 0
    assert (second["position"], second["is_control"], second["producer_id"]) == (first["size"], True, 7)


def test_deep_shows_records_between_their_batches(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = dump(capsys, "--deep", str(segment))
    assert [line["type"] for line in lines] == ["batch", "record", "record", "batch", "record"]
    assert (lines[1]["key"], lines[1]["value"], lines[1]["headers"]) == ("k", "v", [["h", "x"]])
    assert (lines[2]["key"], lines[2]["value"]) == (None, {"base64": "/wA="})
    assert (lines[4]["control"], lines[4]["value"]) == ("ABORT", {"coordinator_epoch": 3})


def test_a_message_of_an_old_format_is_shown_with_the_records_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000000.log"
    data, records = old_segment()
    path.write_bytes(data)
    status, lines = dump(capsys, "--deep", str(path))
    assert status == 0
    assert [line["offset"] for line in lines if line["type"] == "record"] == [each.offset for each in records]
    shown = [line for line in lines if line["type"] == "message"]
    assert {line["magic"] for line in shown} == {0, 1} and all(line["is_valid"] for line in shown)
    assert (shown[-1]["timestamp_type"], shown[-1]["codec"]) == ("LOG_APPEND_TIME", "gzip")


def test_a_torn_tail_and_a_flipped_bit_are_told(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data[:-3])
    status, lines = dump(capsys, str(segment))
    assert status == 1
    assert lines[0]["is_valid"] is False
    assert "does not fit" in str(lines[1]["problem"])


def test_committed_offsets_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__consumer_offsets-7"
    directory.mkdir()
    key = pack(">h", 1) + encode(offsets.OffsetCommitKey(group="g", topic="t", partition=3), 0)
    value = pack(">h", 3) + encode(
        offsets.OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=9), 3
    )
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(key, value, 1), Record(key, None, 2)]))
    _, (_, commit, tombstone) = dump(capsys, "--deep", str(path))
    assert commit["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert commit["value"] == {"offset": 42, "leader_epoch": 5, "metadata": "m", "commit_timestamp": 9}
    assert tombstone["value"] is None


def test_the_records_of_groups_of_all_kinds_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    path.write_bytes(groups_log())
    _, lines = dump(capsys, "--deep", str(path))
    records = [line for line in lines if line["type"] == "record"]
    assert len(records) == 762
    assert [record for record in records if "offsets" not in record or "problem" in record] == []
    topology = next(record for record in records if record["offsets"] == "StreamsGroupTopology")
    assert topology["key"] == {"group_id": "streams-group"}
    value = topology["value"]
    assert isinstance(value, dict) and [each["subtopology_id"] for each in value["subtopologies"]] == ["0", "1"]


def test_the_state_of_share_groups_is_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(share_state_log())
    _, lines = dump(capsys, "--deep", "--contents", "share-state", str(path))
    records = [line for line in lines if line["type"] == "record"]
    assert [record["share_state"] for record in records] == ["ShareSnapshot"] * 4 + ["ShareUpdate"] * 3


def test_metadata_records_are_decoded_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from moldau.kraft.record_frame import encode_record
    from moldau.protocol.records import metadata

    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    record = metadata.FeatureLevelRecord(name="metadata.version", feature_level=30)
    path.write_bytes(build_batch([Record(None, encode_record(record, 0), 1)]))
    _, (_, line) = dump(capsys, "--deep", str(path))
    assert (line["metadata"], line["version"]) == ("FeatureLevelRecord", 0)
    assert line["value"] == {"name": "metadata.version", "feature_level": 30}


def test_secrets_in_metadata_records_are_not_shown() -> None:
    from moldau.kraft.record_frame import encode_record
    from moldau.protocol.records import metadata

    def shown(record: object) -> dict[str, Json]:
        contents = contents_of(Record(value=encode_record(record, 0)), RecordKind.METADATA, is_control=False)
        value = contents["value"]
        assert isinstance(value, dict)
        return value

    def setting(name: str) -> Json:
        return shown(metadata.ConfigRecord(resource_type=4, resource_name="1", name=name, value="swordfish"))["value"]

    assert setting("listener.name.external.ssl.keystore.password") == setting("not.known") == "[hidden]"
    assert setting("log.segment.bytes") == "swordfish"
    credential = metadata.UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )
    assert {name: value for name, value in shown(credential).items() if value == "[hidden]"}.keys() == {
        "salt",
        "stored_key",
        "server_key",
    }


def test_a_directory_stands_for_the_files_in_it(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = segment.parent
    (directory / "00000000000000000000.index").write_bytes(pack(">iiii", 1, 100, 5, 200) + bytes(64))
    (directory / "00000000000000000100.timeindex").write_bytes(pack(">qi", 1000, 1) + bytes(24))
    (directory / "00000000000000000000.txnindex").write_bytes(pack(">hqqqq", 0, 7, 0, 2, 0))
    (directory / "leader-epoch-checkpoint").write_bytes(format_checkpoint(["0 0", "3 17"]))
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: I3DqdqrGSMeNM9i1lkb9Ew\n")
    (directory / "notes.txt").write_text("not ours")
    status, lines = dump(capsys, str(directory))
    assert status == 0
    by_type = {str(line["type"]): line for line in lines}
    assert [line["offset"] for line in lines if line["type"] == "offset_index_entry"] == [1, 5]
    assert by_type["time_index_entry"]["offset"] == 101
    assert by_type["aborted_transaction"]["last_offset"] == 2
    assert by_type["leader_epoch"]["start_offset"] == 17
    assert by_type["partition.metadata"]["topic_id"] == "I3DqdqrGSMeNM9i1lkb9Ew"


def test_a_producer_snapshot_is_a_line_for_each_producer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from crc32c import crc32c

    entry = pack(">qhiqiqiq", 7, 1, 4, 40, 4, 1000, -1, -1)
    body = pack(">i", 1) + entry
    path = tmp_path / "00000000000000000041.snapshot"
    path.write_bytes(pack(">hI", 1, crc32c(body)) + body)
    status, (line,) = dump(capsys, str(path))
    assert status == 0
    assert (line["producer_id"], line["last_sequence"], line["last_offset"]) == (7, 4, 40)
    path.write_bytes(path.read_bytes()[:-1])
    status, (line,) = dump(capsys, str(path))
    assert status == 1 and "problem" in line


def test_checkpoints_of_a_directory_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(format_checkpoint(["orders 0 5", "a-b 12 7"]))
    (tmp_path / "quorum-state").write_text('{"leaderId":1,"data_version":1}')
    (tmp_path / "meta.properties").write_text("#\nversion=1\nnode.id=1\n")
    status, lines = dump(capsys, str(tmp_path))
    assert status == 0
    offsets_shown = [(line["topic"], line["partition"], line["offset"]) for line in lines if "topic" in line]
    assert offsets_shown == [("orders", 0, 5), ("a-b", 12, 7)]
    assert [line["content"] for line in lines if line["type"] == "quorum-state"] == [{"leaderId": 1, "data_version": 1}]
    assert [line["node.id"] for line in lines if line["type"] == "meta.properties"] == ["1"]


def test_a_file_of_no_known_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")
    assert main(["dump-log", str(path)]) == 1
    assert "no file of a log directory has such a name" in capsys.readouterr().err
