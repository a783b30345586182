"""`moldau format`: prepare the directories of a new node, with the flags of kafka-storage."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.cli.invocation import CommandError, Invocation, load_config

if TYPE_CHECKING:
    from broker.config import Config
    from storage.files import FileSystem

DESCRIPTION: Final = """\
Prepare the directories of a new node: the id of its cluster, its own ids, and the first records of its metadata log.

A directory that has been prepared before is refused, or passed over with --ignore-formatted."""
EPILOG: Final = """\
examples:
  moldau format -c server.properties --standalone
  moldau format -c server.properties --standalone -t MkU3OEVBNTcwNTJENDM2Qk
  moldau format -c server.properties --standalone --feature metadata.version=30 --ignore-formatted

Without --cluster-id: the variable CLUSTER_ID, else the id in a directory that is formatted, else a new one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the subcommand takes: the flags of kafka-storage format."""
    parser.add_argument("-c", "--config", metavar="FILE", help="the node's server.properties (without: a node of one)")
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="22 characters of base64: the id of the cluster")
    parser.add_argument("-g", "--ignore-formatted", action="store_true", help="pass over directories already prepared")
    parser.add_argument(
        "-f", "--feature", action="append", default=[], metavar="NAME=LEVEL", help="level of a feature; may be repeated"
    )
    parser.add_argument("-r", "--release-version", metavar="VERSION", help="only 4.3 and 4.3-IV0 are taken")
    parser.add_argument("-S", "--add-scram", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--data", metavar="DIR", help="log.dirs")
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="a setting that wins; may be repeated"
    )
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument("-s", "--standalone", action="store_true", help="this controller is a quorum of one")
    quorum.add_argument("-N", "--no-initial-controllers", action="store_true", help="refused: for several nodes")
    quorum.add_argument("-I", "--initial-controllers", metavar="LIST", help="refused: for several nodes")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Format, and say what was done."""
    _refuse_what_needs_more(arguments)
    features = _features(arguments.feature)
    config = load_config(arguments.config, arguments.data, arguments.override, invocation.variables)
    is_standalone = bool(arguments.standalone) or arguments.config is None
    _check_quorum(config, is_standalone=is_standalone)
    # Entropy and the clock come in here because no environment runs yet: formatting needs no event loop.
    from secrets import token_bytes
    from time import time_ns

    from broker.storage_format import FormatError, format_directories
    from storage.local_files import LocalFiles

    files = LocalFiles()
    cluster_id = (
        arguments.cluster_id
        or invocation.variables.get("CLUSTER_ID")
        or cluster_id_of_a_formatted_directory(files, config)
        or fresh_cluster_id(token_bytes)
    )
    _check_cluster_id(cluster_id)
    try:
        messages = format_directories(
            files,
            config,
            cluster_id=cluster_id,
            features=features,
            ignore_formatted=arguments.ignore_formatted,
            standalone=is_standalone,
            entropy=token_bytes,
            now_ms=time_ns() // 1_000_000,
        )
    except (FormatError, OSError) as refusal:
        raise CommandError(str(refusal)) from None
    for message in messages:
        invocation.out.say(message)
    return 0


def _refuse_what_needs_more(arguments: argparse.Namespace) -> None:
    if arguments.no_initial_controllers or arguments.initial_controllers:
        raise CommandError("a quorum of several controllers is not part of this version; use --standalone")
    if arguments.add_scram:
        raise CommandError("--add-scram: SASL is not part of this version")
    if arguments.release_version not in (None, "4.3", "4.3-IV0"):
        raise CommandError(f"--release-version {arguments.release_version}: this version writes 4.3-IV0 only")


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


def _check_quorum(config: Config, *, is_standalone: bool) -> None:
    if is_standalone and config.controller_quorum_voters:
        raise CommandError("with --standalone, controller.quorum.voters must not be set")
    if not is_standalone and not config.controller_quorum_voters:
        raise CommandError("controller.quorum.voters is not set on this controller: give --standalone")


def _check_cluster_id(cluster_id: str) -> None:
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
    """Further directories of a node join the cluster of those that it has."""
    from storage.meta_properties import InvalidMetaProperties, read_meta_properties

    for directory in config.log_dirs:
        try:
            properties = read_meta_properties(files, directory)
        except (InvalidMetaProperties, OSError):
            continue
        if properties is not None:
            return properties.cluster_id
    return None


def fresh_cluster_id(entropy: Callable[[int], bytes]) -> str:
    """An id that a shell does not take for an option: like Apache Kafka's, it never begins with a dash."""
    from base64 import urlsafe_b64encode

    while True:
        cluster_id = urlsafe_b64encode(entropy(16)).decode("ascii").rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id
