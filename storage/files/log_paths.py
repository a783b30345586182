"""The names of files and directories in a log directory."""

from __future__ import annotations

from moldau.protocol.late_tuple import NamedTuple

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

METADATA_DIRECTORY = "__cluster_metadata-0"
"""The name of the directory with the metadata log and its snapshots."""
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""The name of the file with the first records of the metadata log, which `moldau format` writes."""

OFFSET_DIGITS = 20


def receipt_path(directory: str, order_id: str) -> str:
    """The path of the receipt of an erase order (`storage/erasure/receipts.py`) in the directory of a log."""
    return f"{directory}/erase-receipt-{order_id}.json"


class PartitionDirectory(NamedTuple):
    """The parts of a partition directory's name."""

    topic: str
    partition: int
    suffix: str
    """The suffix: empty for a live replica, else `-delete`, `-future` or `-stray`."""
    unique: str
    """The 32 hex digits before the suffix; empty for a live replica."""


DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
DIRECTORY_SUFFIXES = (DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX)
DIRECTORY_NAME_SIZE_MAX = 255
UNIQUE_DIGITS = 32


def holds_credentials(path: str) -> bool:
    """Whether a file or directory at a path has records of the metadata log, which may have SCRAM credentials."""
    directory, _, name = path.rstrip("/").rpartition("/")
    return name.startswith(BOOTSTRAP_CHECKPOINT) or METADATA_DIRECTORY in (name, directory.rpartition("/")[2])


def offset_name(offset: int, suffix: str) -> str:
    """The name of a file of a log: its offset in 20 digits, and the suffix."""
    return f"{offset:020d}{suffix}"


def offset_of_name(name: str) -> int:
    """The offset in the first 20 characters of a file's name. Raises ValueError if the name does not begin with an
    offset."""
    if not begins_with_offset(name):
        raise ValueError(f"no offset in the file name {name!r}")
    return int(name[:OFFSET_DIGITS])


def begins_with_offset(name: str) -> bool:
    """Whether a file's name begins with an offset, as those of all files of a segment do."""
    digits = name.partition(".")[0]
    return len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit()


def partition_directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def suffixed_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name `<topic>-<partition>.<32 hex digits><suffix>` of a partition directory that is not served. If it is too
    long, the topic is cut short, as in Kafka."""
    assert len(unique) == UNIQUE_DIGITS and suffix in DIRECTORY_SUFFIXES
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: DIRECTORY_NAME_SIZE_MAX - len(tail)] + tail


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Parse the name of a partition directory; None if the name has another form."""
    suffix = unique = ""
    for candidate in DIRECTORY_SUFFIXES:
        head = name[: -len(candidate)]
        body, dot, digits = head.rpartition(".")
        if name.endswith(candidate) and dot and len(digits) == UNIQUE_DIGITS and _is_hex(digits):
            name, suffix, unique = body, candidate, digits
            break
    topic, dash, number = name.rpartition("-")
    if not topic or not dash or not number.isascii() or not number.isdigit():
        return None
    return PartitionDirectory(topic, int(number), suffix, unique)


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdef" for digit in digits)
