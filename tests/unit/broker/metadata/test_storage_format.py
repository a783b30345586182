"""Formatting: what a new node finds in its directories, and what is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from moldau.broker.cli.scram_credentials import scram_record
from moldau.broker.config.config import Config
from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.broker.metadata.quorum_start import UnusableMetadata, bootstrap_records, history_of
from moldau.broker.metadata.storage_format import FormatError, format_directories, levels_of
from moldau.kraft.features import METADATA_VERSION_NAMES, SUPPORTED_FEATURES
from moldau.kraft.image.finalized_features import FeaturesImage
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.snapshot.batches import read_snapshot
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.metadata import FeatureLevelRecord
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
FS = LocalFiles()


def config(root: Path, **overrides: str) -> Config:
    return checked_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "h:9093",
            "listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{root}/a,{root}/b",
            "metadata.log.dir": f"{root}/m",
            **{name.replace("_", "."): value for name, value in overrides.items()},
        }
    )


def format_all(
    root: Path,
    features: dict[str, int] | None = None,
    *,
    ignore: bool = False,
    standalone: bool = True,
    cluster_id: str = CLUSTER_ID,
    **overrides: str,
) -> list[str]:
    entropy = Random(str(root)).randbytes
    return format_directories(
        FS, config(root, **overrides), cluster_id, features or {}, ignore, standalone, entropy, now_ms=1000
    )


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_the_files_are_those_that_kafka_writes(tmp_path: Path) -> None:
    assert format_all(tmp_path) == [
        f"Formatting dynamic metadata voter directory {tmp_path}/m with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/a with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.",
    ]
    assert files(tmp_path) == [
        "a/bootstrap.checkpoint",
        "a/meta.properties",
        "b/bootstrap.checkpoint",
        "b/meta.properties",
        "m/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "m/bootstrap.checkpoint",
        "m/meta.properties",
    ]
    found = [read_meta_properties(FS, f"{tmp_path}/{name}") for name in "abm"]
    assert all(each is not None and (each.cluster_id, each.node_id) == (CLUSTER_ID, 1) for each in found)
    assert len({each.directory_id for each in found if each is not None}) == 3


def test_the_voter_stands_in_the_first_snapshot(tmp_path: Path) -> None:
    format_all(tmp_path)
    path = tmp_path / "m/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    properties = read_meta_properties(FS, f"{tmp_path}/m")
    assert properties is not None and properties.directory_id is not None
    voter = VoterNode(1, properties.directory_id, (("CONTROLLER", ("h", 9093)),))
    content = read_snapshot(path.read_bytes())
    assert content.quorum == QuorumDescription(1, VoterSet.from_voters([voter])) and not content.records


def test_a_static_quorum_has_no_snapshot(tmp_path: Path) -> None:
    lines = format_all(
        tmp_path, standalone=False, controller_quorum_bootstrap_servers="", controller_quorum_voters="1@h:9093"
    )
    assert lines[0] == f"Formatting metadata directory {tmp_path}/m with metadata.version 4.3-IV0."
    assert not (tmp_path / "m/__cluster_metadata-0").exists()


def test_a_formatted_directory_is_refused_or_passed_over(tmp_path: Path) -> None:
    format_all(tmp_path)
    before = files(tmp_path)
    with pytest.raises(FormatError, match="already formatted"):
        format_all(tmp_path)
    assert format_all(tmp_path, ignore=True) == ["All of the log directories are already formatted."]
    (tmp_path / "b/meta.properties").unlink()
    assert format_all(tmp_path, ignore=True) == [
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0."
    ]
    assert files(tmp_path) == before


def test_a_directory_of_another_cluster_is_never_passed_over(tmp_path: Path) -> None:
    format_all(tmp_path)
    with pytest.raises(FormatError, match="in cluster"):
        format_all(tmp_path, ignore=True, cluster_id="AAAAAAAAAAAAAAAAAAAAZw")
    (tmp_path / "a/meta.properties").write_text("version=0\nbroker.id=1\n")
    with pytest.raises(FormatError, match="ZooKeeper"):
        format_all(tmp_path, ignore=True)


@pytest.mark.parametrize(
    "features",
    [
        {"group.version": 2},
        {"share.version": 3},
        {"metadata.version": 24},
        {"metadata.version": 34},
        {"nonsense": 1},
        {"kraft.version": 0},
    ],
)
def test_features_that_are_not_supported_are_refused_by_name(tmp_path: Path, features: dict[str, int]) -> None:
    with pytest.raises(FormatError, match=next(iter(features))):
        format_all(tmp_path, features)
    assert files(tmp_path) == [], "a refusal writes nothing"


def test_an_older_metadata_version_goes_into_the_bootstrap_records(tmp_path: Path) -> None:
    format_all(tmp_path, {"metadata.version": 25, "group.version": 0})
    expected = [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]
    assert bootstrap_records(FS, config(tmp_path)) == expected
    assert set(METADATA_VERSION_NAMES) == set(
        range(SUPPORTED_FEATURES["metadata.version"].first, SUPPORTED_FEATURES["metadata.version"].last + 1)
    )


LEVELS_OF_RELEASES = {
    25: {"transaction.version": 2, "group.version": 1},
    26: {"transaction.version": 2, "group.version": 1, "eligible.leader.replicas.version": 1},
    28: {"transaction.version": 2, "group.version": 1, "eligible.leader.replicas.version": 1, "share.version": 1},
    30: {"transaction.version": 2, "group.version": 1, "eligible.leader.replicas.version": 1, "share.version": 1}
    | {"streams.version": 1},
    33: {"transaction.version": 2, "group.version": 1, "eligible.leader.replicas.version": 1, "share.version": 2}
    | {"streams.version": 1},
}
"""The levels above 0 that Apache Kafka 4.3.1 formats a cluster with, by metadata.version; at 33 those of 4.4.0."""


@pytest.mark.parametrize("metadata_version", LEVELS_OF_RELEASES)
def test_a_new_cluster_begins_at_the_levels_of_its_release_that_are_supported(metadata_version: int) -> None:
    levels = LEVELS_OF_RELEASES[metadata_version]
    want = {"metadata.version": metadata_version, "kraft.version": 1}
    want |= {name: level for name, level in levels.items() if level <= SUPPORTED_FEATURES[name].last}
    assert levels_of({"metadata.version": metadata_version}, is_dynamic=True) == want
    off = {"metadata.version": metadata_version, "group.version": 0}
    assert levels_of(off, is_dynamic=True) == {**want, "group.version": 0}


def test_a_quorum_that_this_node_cannot_run_is_refused(tmp_path: Path) -> None:
    format_all(tmp_path)
    node = config(tmp_path)
    loaded = MetadataLog.open(FS, f"{tmp_path}/m", LogConfig(), 1000)
    history = history_of(node, loaded)
    assert history.voters.ids == (node.node_id,) and not history.is_in_log, "the next leader announces them"
    loaded.replay.image = MetadataImage(Provenance(), FeaturesImage({"share.version": 3, "group.version": 2}))
    with pytest.raises(UnusableMetadata, match=r"share\.version.*group\.version"):
        history_of(node, loaded)
    loaded.log.log.close(1000, clean=True)


def test_bootstrap_records_of_an_unsupported_feature_are_refused(tmp_path: Path) -> None:
    format_all(tmp_path)
    from moldau.kraft.snapshot.batches import snapshot_batches

    records = [FeatureLevelRecord(name="transaction.version", feature_level=3)]
    batches = snapshot_batches(
        records, QuorumDescription(), metadata_version=30, epoch=0, last_contained_ms=0, now_ms=0
    )
    (tmp_path / "m/bootstrap.checkpoint").write_bytes(b"".join(batches))
    with pytest.raises(UnusableMetadata, match=r"transaction\.version"):
        bootstrap_records(FS, config(tmp_path))


def test_damage_is_named_and_not_served(tmp_path: Path) -> None:
    format_all(tmp_path)
    snapshot = tmp_path / "m/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    data = bytearray(snapshot.read_bytes())
    data[100] ^= 1
    snapshot.chmod(0o644)
    snapshot.write_bytes(data)
    with pytest.raises(MalformedMessage, match=r"0000000000\.checkpoint: .*checksum"):
        MetadataLog.open(FS, f"{tmp_path}/m", LogConfig(), 1000)


def test_a_rotten_record_is_seen_when_it_is_read(tmp_path: Path) -> None:
    """Recovery looks at what may be torn; everything else is checked when it is read."""
    format_all(tmp_path)
    loaded = MetadataLog.open(FS, f"{tmp_path}/m", LogConfig(), 1000)
    feature = FeatureLevelRecord(name="metadata.version", feature_level=30)
    for _ in range(3):
        loaded.log.append([feature], 30, 1, 1000)
    loaded.log.log.close(1000, clean=True)
    path = tmp_path / "m/__cluster_metadata-0/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    log = Log.open(FS, f"{tmp_path}/m/__cluster_metadata-0", LogConfig(), clean_shutdown=True, now_ms=1000)
    with pytest.raises(MalformedMessage, match="offset 0 has a wrong checksum"):
        list(MetadataLog(FS, log, [])._batches(0))
    log.close(1000, clean=False)


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ({}, 1),
        ({"metadata.version": 26}, 1),
        ({"metadata.version": 25}, None),
        ({"eligible.leader.replicas.version": 0}, None),
    ],
)
def test_eligible_leader_replicas_are_on_unless_told_otherwise(
    tmp_path: Path, features: dict[str, int], level: int | None
) -> None:
    """As Apache Kafka's storage tool maps versions: from metadata.version 26 on."""
    format_all(tmp_path, features)
    levels = {each.name: each.feature_level for each in bootstrap_records(FS, config(tmp_path))}  # type: ignore[attr-defined]
    assert levels.get("eligible.leader.replicas.version") == level


def test_credentials_are_among_the_first_records(tmp_path: Path) -> None:
    record = scram_record("SCRAM-SHA-256=[name=alice,password=secret]", Random(1).randbytes)
    entropy = Random(1).randbytes
    format_directories(FS, config(tmp_path), CLUSTER_ID, {}, False, True, entropy, credentials=[record])
    for directory in ("m", "a", "b"):
        written = (tmp_path / directory / "bootstrap.checkpoint").read_bytes()
        assert record in read_snapshot(written).records
        assert b"secret" not in written
    assert record in bootstrap_records(FS, config(tmp_path))
