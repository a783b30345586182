"""`moldau format`: prepares the directories of a new node, with the flags of kafka-storage."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation, load_config, text_of

if TYPE_CHECKING:
    from moldau.broker.cli.secure_node import SecureFiles
    from moldau.broker.config import Config
    from moldau.storage.files.port import FileSystem

DESCRIPTION: Final = """\
Prepare the directories of a new node: the id of its cluster, its own ids, and the first records of its metadata log.

A controller learns the first controllers of its quorum from controller.quorum.voters in its file, or else from one of
--standalone (it is the only one), --initial-controllers (the list) and --no-initial-controllers (it joins a quorum that
exists). Brokers need none of these. All nodes of a cluster are given the same --cluster-id.

A directory that is formatted already is refused; with --ignore-formatted it is left as it is."""
EPILOG: Final = """\
examples:
  moldau format -c server.properties --standalone
  moldau format -c server.properties --standalone -t MkU3OEVBNTcwNTJENDM2Qk
  moldau format -c server.properties --standalone --release-version 4.2 --ignore-formatted
  moldau format --secure ./secure --host kafka.example.org
  moldau format -c controller.properties -t MkU3OEVBNTcwNTJENDM2Qk --no-initial-controllers
  moldau format -c controller.properties -t MkU3OEVBNTcwNTJENDM2Qk \\
    --initial-controllers 1@a:9093:8wTLVMuVS7ebtRfBsi2mWg,2@b:9093:gyw8wFj5RpeNNSyHzwJbeg

`moldau random-uuid` makes ids for clusters and directories.

Without --cluster-id: the variable CLUSTER_ID, else the id in a directory that is formatted, else a new one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments, which are those of kafka-storage format."""
    from moldau.kraft.features import METADATA_VERSION_NAMES

    releases = [name.partition("-")[0] for name in METADATA_VERSION_NAMES.values()]
    parser.add_argument("-c", "--config", metavar="FILE", help="the node's server.properties (without: a node of one)")
    parser.add_argument(
        "-t",
        "--cluster-id",
        metavar="ID",
        help="the id of the cluster: 22 characters of base64, as 'moldau random-uuid' makes them",
    )
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave directories that are formatted as they are"
    )
    parser.add_argument(
        "-f", "--feature", action="append", default=[], metavar="NAME=LEVEL", help="level of a feature; may be repeated"
    )
    parser.add_argument(
        "-r",
        "--release-version",
        metavar="VERSION",
        help=f"format with the metadata.version of this release: {releases[0]} to {releases[-1]}",
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a SCRAM credential, as SCRAM-SHA-256=[name=alice,password=alice-secret]; may be repeated",
    )
    parser.add_argument(
        "--secure",
        metavar="DIR",
        help="make a closed node of one: TLS, SCRAM users and settings in a directory; server.properties is in it",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --secure: a name or address of the node for clients; may be repeated, the first is advertised",
    )
    parser.add_argument("--data", metavar="DIR", help="the directory to format; log.dirs")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that takes precedence; may be repeated",
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument(
        "-s", "--standalone", action="store_true", help="this controller is the only voter of the quorum"
    )
    quorum.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="this controller joins a quorum that exists"
    )
    quorum.add_argument(
        "-I", "--initial-controllers", metavar="LIST", help="the first controllers: id@host:port:directory-id, ..."
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Format the log directories, and print a line for each."""
    features = _features(arguments.feature) | _release_level(arguments)
    secure = _secured(arguments)
    try:
        messages = _format(arguments, invocation, features, is_secure=secure is not None)
    except CommandError:
        if secure is not None:
            secure.undo()
        raise
    for message in (*(secure.messages if secure is not None else ()), *messages):
        invocation.out.say(message)
    return 0


def _format(
    arguments: argparse.Namespace, invocation: Invocation, features: dict[str, int], *, is_secure: bool
) -> list[str]:
    """Format the log directories. Returns a line to print for each. Raises `CommandError`."""
    config = load_config(arguments.config, arguments.data, arguments.override, invocation.variables)
    is_several = arguments.initial_controllers is not None or arguments.no_initial_controllers
    is_standalone = bool(arguments.standalone) or ((arguments.config is None or is_secure) and not is_several)
    _check_quorum(config, arguments, is_standalone=is_standalone)
    # The command uses entropy and the clock directly, because formatting needs no event loop and so no environment.
    from secrets import token_bytes
    from time import time_ns

    from moldau.broker.cli.scram_credentials import InvalidScram, scram_record
    from moldau.broker.metadata.storage_format import FormatError, format_directories, read_initial_voters
    from moldau.storage.files.local_files import LocalFiles

    files = LocalFiles()
    cluster_id = (
        arguments.cluster_id
        or invocation.variables.get("CLUSTER_ID")
        or cluster_id_of_a_formatted_directory(files, config)
        or fresh_cluster_id(token_bytes)
    )
    check_cluster_id(cluster_id)
    listed = arguments.initial_controllers
    try:
        return format_directories(
            files,
            config,
            cluster_id=cluster_id,
            features=features,
            ignore_formatted=arguments.ignore_formatted,
            standalone=is_standalone,
            entropy=token_bytes,
            now_ms=time_ns() // 1_000_000,
            initial_voters=None if listed is None else read_initial_voters(listed, config.controller_listener_names[0]),
            credentials=[scram_record(each, token_bytes) for each in arguments.add_scram],
        )
    except (FormatError, InvalidScram, OSError) as refusal:
        raise CommandError(text_of(refusal)) from None


def _secured(arguments: argparse.Namespace) -> SecureFiles | None:
    """Make the files of `--secure`, and use them as the node's configuration and its first users. None if the option is
    not given.
    """
    if arguments.secure is None:
        if arguments.host:
            raise CommandError("--host goes with --secure")
        return None
    if arguments.config is not None:
        raise CommandError("--secure writes the settings itself: give --override in place of --config")
    from pathlib import Path
    from secrets import token_bytes
    from time import time_ns

    from moldau.broker.cli.secure_node import secure_files

    files = secure_files(Path(arguments.secure), arguments.data, arguments.host, token_bytes, time_ns() // 1_000_000)
    arguments.config = files.server
    arguments.add_scram += files.credentials
    return files


def _release_level(arguments: argparse.Namespace) -> dict[str, int]:
    """The metadata version of `--release-version`, as a feature level. If a release has several, it is the last one.
    Empty if the option is not given.
    """
    from moldau.kraft.features import METADATA_VERSION, METADATA_VERSION_NAMES

    release = arguments.release_version
    if release is None:
        return {}
    if any(each.partition("=")[0].strip() == METADATA_VERSION for each in arguments.feature):
        raise CommandError(f"--release-version and --feature {METADATA_VERSION} set the same level: give one of them")
    levels = [level for level, name in METADATA_VERSION_NAMES.items() if release in (name, name.partition("-")[0])]
    if not levels:
        known = ", ".join(METADATA_VERSION_NAMES.values())
        raise CommandError(f"--release-version {release}: this version knows {known}")
    return {METADATA_VERSION: max(levels)}


def _features(features: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for feature in features:
        name, equals, level = feature.partition("=")
        if not equals or not name or not level.strip().isdecimal():
            raise CommandError(f"--feature takes name=level with a whole number as the level, not {feature!r}")
        if name in levels:
            raise CommandError(f"--feature {name} is given twice")
        levels[name.strip()] = int(level)
    return levels


def _check_quorum(config: Config, arguments: argparse.Namespace, *, is_standalone: bool) -> None:
    is_told = is_standalone or arguments.initial_controllers is not None
    if is_told and config.controller_quorum_voters:
        flag = "--standalone" if is_standalone else "--initial-controllers"
        raise CommandError(
            f"with {flag}, controller.quorum.voters must not be set: the metadata log names the voters in that case"
        )
    if not config.is_controller and is_standalone:
        raise CommandError("--standalone is for a node with the controller role")
    if config.controller_quorum_voters or not config.is_controller:
        return
    if not is_told and not arguments.no_initial_controllers:
        raise CommandError(
            "controller.quorum.voters is not set on this controller: give --standalone, --initial-controllers or"
            " --no-initial-controllers"
        )


def check_cluster_id(cluster_id: str) -> None:
    import base64
    import binascii

    try:
        size = len(base64.b64decode(cluster_id + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 16:
        raise CommandError(
            f"cluster id {cluster_id!r} is not the base64 form of 16 bytes (22 letters, digits, '-' and '_')"
        )


def cluster_id_of_a_formatted_directory(files: FileSystem, config: Config) -> str | None:
    """The cluster id of a log directory that is formatted already; None if no directory is. New directories of the node
    must get the same id.
    """
    from moldau.storage.checkpoints.meta_properties import InvalidMetaProperties, read_meta_properties

    for directory in config.log_dirs:
        try:
            properties = read_meta_properties(files, directory)
        except (InvalidMetaProperties, OSError):
            continue
        if properties is not None:
            return properties.cluster_id
    return None


def fresh_cluster_id(entropy: Callable[[int], bytes]) -> str:
    """Make a random cluster id.

    Like Apache Kafka's, it never begins with a dash, which a command line would parse as an option.
    """
    from base64 import urlsafe_b64encode

    while True:
        cluster_id = urlsafe_b64encode(entropy(16)).decode("ascii").rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id
