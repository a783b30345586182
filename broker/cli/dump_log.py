"""`moldau dump-log`: shows log files, indexes and checkpoints as JSON lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation, is_of_output, reason_of

if TYPE_CHECKING:
    from moldau.broker.console.decoding.record_contents import Json

DESCRIPTION: Final = """\
Show what is in the files of a log, one JSON object a line: batches (with --deep their records), indexes, producer
snapshots, checkpoints, snapshots of the metadata log. Records of __cluster_metadata and __consumer_offsets are decoded.

A directory stands for the files in it that this command knows. The broker may be running."""
EPILOG: Final = """\
examples:
  moldau dump-log data/orders-0
  moldau dump-log --deep data/__cluster_metadata-0/00000000000000000000.log
  moldau dump-log data/orders-0/*.index | jq -c '[.offset, .position]'

The exit status is 1 where something is not as it should be; such a line has "problem" or "is_valid": false."""

_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
_PROPERTIES: Final = ("partition.metadata", "meta.properties")
_JSON_FILES: Final = ("quorum-state", ".kafka_cleanshutdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, or directories of them")
    parser.add_argument("--deep", action="store_true", help="show the records of each batch too")
    parser.add_argument(
        "--contents",
        choices=("auto", "plain", "metadata", "offsets", "transactions", "share-state"),
        default="auto",
        help="what the records hold (default: by the name of the directory)",
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print the contents of the files. Returns the exit status: 1 if a file is damaged."""
    from json import dumps

    is_sound = True
    for path in _files(arguments.files):
        try:
            for line in dump_file(path, arguments.contents, deep=arguments.deep):
                is_sound = is_sound and "problem" not in line and line.get("is_valid") is not False
                invocation.out.say(dumps({"file": str(path), **line}, ensure_ascii=False))
        except BrokenPipeError:
            raise
        except OSError as problem:
            if is_of_output(problem):
                raise
            raise CommandError(f"{path} cannot be read: {reason_of(problem)}") from None
        except ValueError as problem:
            is_sound = False
            invocation.out.say(dumps({"file": str(path), "type": "problem", "problem": str(problem)}))
    return 0 if is_sound else 1


def dump_file(path: Path, contents: str, *, deep: bool) -> Iterator[dict[str, Json]]:
    """Dump one file, as one JSON object for each line of output. The file's name selects the format. Raises
    CommandError for an unknown name.
    """
    from moldau.broker.cli import dumped_files
    from moldau.broker.cli.dumped_files import dumped_batches
    from moldau.broker.config.internal_topics import CONTENTS_OF_TOPICS, RecordKind

    name = path.name.removesuffix(".deleted")
    if name.endswith((".log", ".checkpoint")):
        topic = path.absolute().parent.name.rpartition("-")[0]
        guessed = (
            RecordKind.METADATA if name.endswith(".checkpoint") else CONTENTS_OF_TOPICS.get(topic, RecordKind.PLAIN)
        )
        return dumped_batches(path, guessed if contents == "auto" else RecordKind(contents), deep=deep)
    by_suffix = {
        ".index": dumped_files.dumped_offset_index,
        ".timeindex": dumped_files.dumped_time_index,
        ".txnindex": dumped_files.dumped_transaction_index,
        ".snapshot": dumped_files.dumped_producer_snapshot,
    }
    for suffix, dump in by_suffix.items():
        if name.endswith(suffix):
            return dump(path)
    if name in _CHECKPOINTS:
        return dumped_files.dumped_offset_checkpoint(path)
    if name == "leader-epoch-checkpoint":
        return dumped_files.dumped_leader_epochs(path)
    if name in _PROPERTIES:
        return dumped_files.dumped_properties(path)
    if name in _JSON_FILES:
        return dumped_files.dumped_json(path)
    raise CommandError(f"{path}: no file of a log directory has such a name")


def _files(names: list[str]) -> Iterator[Path]:
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from sorted(each for each in path.iterdir() if each.is_file() and _is_known(each.name))
        else:
            yield path


def _is_known(name: str) -> bool:
    suffixes = (".log", ".checkpoint", ".index", ".timeindex", ".txnindex", ".snapshot")
    known = (*_CHECKPOINTS, *_PROPERTIES, *_JSON_FILES, "leader-epoch-checkpoint")
    return name in known or name.removesuffix(".deleted").endswith(suffixes)
