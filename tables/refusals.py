"""The errors of a read that are reported to the user."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class Refused(ValueError):
    """The query cannot be run with these options. The message names the option and the reason."""


class ClusterMismatch(Refused):
    """The places to read belong to different clusters or have different topics of one name, or a snapshot is of another
    cluster than the files."""


class PlaceUnavailable(Refused):
    """A place to read does not exist, such as a mount that is away, or it changes faster than a read is planned."""


class DataLost(Refused):
    """Records at the requested offsets have been deleted, or are not in the files."""


class TopicRecreated(DataLost):
    """A topic was deleted and another one of the same name was created. Earlier runs of the query have read records of
    the deleted topic, whose offsets mean nothing in the new one."""


class SegmentReplaced(DataLost):
    """Compaction replaced a segment after the read was planned."""


class HistoriesDiffer(Refused):
    """Replicas of a partition have different records below their high watermarks, and nothing tells which are right."""


class IsolationDiffers(Refused):
    """An export or a table that was begun with one isolation level would be continued with the other one."""


class SnapshotChanged(DataLost):
    """The files with the offsets of a snapshot have changed since it was taken."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to a wrong name, as a clause for the end of a message. Return an empty
    text if none is similar."""
    from difflib import get_close_matches  # only a mistake needs it

    names = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), names, 1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


def warn(message: str) -> None:
    """Write a warning to the standard error of the process, once for each message."""
    warnings.warn(f"moldau: {message}", UserWarning, stacklevel=2)
