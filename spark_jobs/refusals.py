"""The refusals that a user of the data source sees, and the reason of a failed query without Spark's stack traces."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.errors import PySparkException


class Refused(ValueError):
    """The query cannot be run with these options; the message names the option and the reason."""


class ClusterMismatch(Refused):
    """The places to read belong to different clusters or hold different topics of one name, or a snapshot is of
    another cluster than the files.
    """


class DataLost(Refused):
    """Records of the requested offsets have been deleted, or are not in the files."""


class TopicRecreated(DataLost):
    """The topic was deleted and another one of its name was created: earlier runs have read records of the deleted one,
    whose offsets mean nothing in the new one.
    """


class SegmentReplaced(DataLost):
    """Compaction replaced a segment after the read was planned."""


class HistoriesDiffer(Refused):
    """Replicas of a partition have different records below their high watermarks, and nothing tells which are right."""


class IsolationDiffers(Refused):
    """An export that has begun with one isolation level would continue with the other."""


class SnapshotChanged(DataLost):
    """The files below the offsets of a snapshot have changed since it was taken."""


def warn(message: str) -> None:
    """Warn on the standard error of the process, once for each message."""
    warnings.warn(f"moldau: {message}", UserWarning, stacklevel=2)


_NAMES: Final = (
    "MalformedMessage",
    "Refused",
    "ClusterMismatch",
    "DataLost",
    "TopicRecreated",
    "SegmentReplaced",
    "SnapshotChanged",
    "TransactionsLost",
    "ValueNotDecoded",
    "CorruptCheckpoint",
    "CorruptTransactionIndex",
    "StorageUnavailable",
    "AccessRefused",
    "StorageMissing",
    "ObjectNotFound",
    "CorruptObject",
    "WrongCluster",
)
_OURS: Final = re.compile(rf"^(?:[\w.]+\.)?(?:{'|'.join(_NAMES)}): (.*)$", re.MULTILINE)


def reason_of(failure: PySparkException) -> str:
    """The message of the data source; where there is none, all that Spark says, and its first line again as the last
    one: a session of a job logs no stack traces of tasks.
    """
    text = str(failure)
    ours = _OURS.search(text)
    if ours:
        return ours[1].strip()
    first, newline, _ = text.strip().partition("\n")
    return f"{text.strip()}\n{first}" if newline else first
