"""Prepares the directories of a new node, like kafka-storage format.

Every directory gets meta.properties and bootstrap.checkpoint, the first records of the metadata log. If the
configuration names no voters, the log names them (kraft.version 1): the metadata directory of each of the first voters
also gets the snapshot 0-0 with them. A node without that snapshot learns the voters from the leader that it follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.metadata.metadata_log import DIRECTORY, write_batches
from moldau.kraft.features import (
    DEFAULT_LEVELS,
    DEFAULT_METADATA_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    refusal_of_feature,
)
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.snapshot.batches import snapshot_batches
from moldau.kraft.snapshot.names import BOOTSTRAP_CHECKPOINT, SnapshotId
from moldau.protocol.records.metadata import FeatureLevelRecord, UserScramCredentialRecord
from moldau.storage.checkpoints.meta_properties import (
    META_PROPERTIES_FILE,
    InvalidMetaProperties,
    MetaProperties,
    new_directory_id,
    read_meta_properties,
    write_meta_properties,
)
from moldau.storage.checkpoints.partition_metadata import parse_uuid
from moldau.storage.files.port import FileSystem, make_durable_directory

Entropy = Callable[[int], bytes]
EXAMPLE_DIRECTORY_ID: Final = "8wTLVMuVS7ebtRfBsi2mWg"


class FormatError(Exception):
    """The directories cannot be formatted, and nothing was written; the text gives the reason."""


def format_directories(
    fs: FileSystem,
    config: Config,
    cluster_id: str,
    features: Mapping[str, int],
    ignore_formatted: bool,
    standalone: bool,
    entropy: Entropy,
    now_ms: int = 0,
    initial_voters: VoterSet | None = None,
    credentials: Sequence[UserScramCredentialRecord] = (),
) -> list[str]:
    """Format the directories that are not formatted yet. Returns a line of text for each. Raises `FormatError` and
    OSError. Blocks.

    `standalone`: this controller is the only voter. `initial_voters`: the voters, if they are several.
    `credentials`: the SCRAM credentials of users that can log in from the first start on.
    """
    levels = levels_of(features, is_dynamic=standalone or not config.controller_quorum_voters)
    directories = list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))
    formatted = [path for path in directories if is_formatted(fs, path, cluster_id, config.node_id)]
    if formatted and not ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory"
            " and format the others."
        )
    todo = [path for path in directories if path not in formatted]
    if not todo:
        return ["All of the log directories are already formatted."]
    lines = []
    for path in todo:
        make_durable_directory(fs, path)
        directory_id = new_directory_id(entropy)
        write_bootstrap(fs, path, levels, now_ms, credentials)
        kind = "data directory"
        if path == config.metadata_log_dir:
            voters = VoterSet.from_voters([this_voter(config, directory_id)]) if standalone else initial_voters
            kind = kind_of_metadata_directory(config, voters)
            if voters is not None:
                if config.node_id in voters.by_id:
                    directory_id = voters.by_id[config.node_id].directory_id
                write_voters(fs, config, voters, levels, now_ms)
        # This file is written last, because it marks the directory as formatted.
        write_meta_properties(fs, path, MetaProperties(cluster_id, config.node_id, directory_id))
        version = METADATA_VERSION_NAMES[levels[METADATA_VERSION]]
        lines.append(f"Formatting {kind} {path} with metadata.version {version}.")
    return lines


def levels_of(features: Mapping[str, int], *, is_dynamic: bool) -> dict[str, int]:
    """The level of every feature in a new cluster: those in `features`, and for the others Apache Kafka's defaults, as
    far as this version supports them. `is_dynamic`: use kraft.version 1, so that the log names the voters. Raises
    `FormatError`.
    """
    levels = {METADATA_VERSION: DEFAULT_METADATA_VERSION, KRAFT_VERSION: int(is_dynamic), **features}
    for name, defaults in DEFAULT_LEVELS.items():
        reached = [each.level for each in defaults if levels[METADATA_VERSION] >= each.metadata_version]
        if reached:
            levels.setdefault(name, reached[-1])
    for name, level in levels.items():
        refusal = refusal_of_feature(name, level)
        if refusal is not None:
            raise FormatError(f"--feature {name}={level}: {refusal}")
    if is_dynamic and levels[KRAFT_VERSION] == 0:
        raise FormatError("kraft.version 0 needs controller.quorum.voters: without them the log names the voters")
    if not is_dynamic and levels[KRAFT_VERSION] == 1:
        raise FormatError(
            "kraft.version 1 and controller.quorum.voters exclude one another: the log names the voters then"
        )
    return levels


def kind_of_metadata_directory(config: Config, voters: VoterSet | None) -> str:
    """The words with which the output of Apache Kafka's kafka-storage describes a metadata directory."""
    if voters is None:
        return "metadata directory"
    return "dynamic metadata voter directory" if config.node_id in voters.by_id else "dynamic metadata directory"


def this_voter(config: Config, directory_id: bytes) -> VoterNode:
    listeners = tuple((each.name, (each.host, each.port)) for each in config.advertised_controller_listeners)
    return VoterNode(config.node_id, directory_id, listeners)


def read_initial_voters(text: str, listener: str) -> VoterSet:
    """Parse the initial voters: `id@host:port:directory id`, separated by commas. A directory id is 22 characters of
    base64.

    Raises `FormatError`.
    """
    voters = []
    for entry in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\d+)@(\[[^\]]+\]|[^:\[\]]+):(\d+):([A-Za-z0-9_-]{22})\s*", entry)
        if match is None:
            raise FormatError(f"{entry!r} is not id@host:port:directory-id, as in 1@host:9093:{EXAMPLE_DIRECTORY_ID}")
        address = (match[2].strip("[]"), int(match[3]))
        voters.append(VoterNode(int(match[1]), parse_uuid(match[4]), ((listener, address),)))
    if len({voter.id for voter in voters}) < len(voters) or len({voter.directory_id for voter in voters}) < len(voters):
        raise FormatError("each of the initial controllers has an id and a directory id of its own")
    if not voters:
        raise FormatError("there are no initial controllers in the list")
    return VoterSet.from_voters(voters)


def is_formatted(fs: FileSystem, path: str, cluster_id: str, node_id: int) -> bool:
    try:
        properties = read_meta_properties(fs, path)
    except InvalidMetaProperties as error:
        raise FormatError(str(error)) from error
    if properties is None:
        return False
    if (properties.cluster_id, properties.node_id) != (cluster_id, node_id):
        raise FormatError(
            f"{path}/{META_PROPERTIES_FILE} is of node {properties.node_id} in cluster {properties.cluster_id},"
            f" not of node {node_id} in cluster {cluster_id}"
        )
    return True


def write_bootstrap(
    fs: FileSystem,
    path: str,
    levels: Mapping[str, int],
    now_ms: int,
    credentials: Sequence[UserScramCredentialRecord] = (),
) -> None:
    others = sorted(name for name, level in levels.items() if level and name not in (METADATA_VERSION, KRAFT_VERSION))
    batches = snapshot_batches(
        [
            *(FeatureLevelRecord(name=name, feature_level=levels[name]) for name in (METADATA_VERSION, *others)),
            *credentials,
        ],
        QuorumDescription(),
        metadata_version=levels[METADATA_VERSION],
        epoch=0,
        last_contained_ms=0,
        now_ms=now_ms,
    )
    write_batches(fs, f"{path}/{BOOTSTRAP_CHECKPOINT}", batches)


def write_voters(fs: FileSystem, config: Config, voters: VoterSet, levels: Mapping[str, int], now_ms: int) -> None:
    directory = f"{config.metadata_log_dir}/{DIRECTORY}"
    make_durable_directory(fs, directory)
    batches = snapshot_batches(
        (),
        QuorumDescription(levels[KRAFT_VERSION], voters),
        metadata_version=levels[METADATA_VERSION],
        epoch=0,
        last_contained_ms=now_ms,
        now_ms=now_ms,
    )
    write_batches(fs, f"{directory}/{SnapshotId(0, 0).file_name}", batches)
