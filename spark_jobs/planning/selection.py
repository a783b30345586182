"""The selection of the partitions that a query reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from moldau.spark_jobs.options.read_options import TopicSelection
from moldau.spark_jobs.refusals import Refused, warn
from moldau.storage.checkpoints.text_checkpoint import TopicPartition

INTERNAL_TOPICS: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    }
)
"""Internal topics: read when they are named, and never matched by a pattern."""


def selected(found: Iterable[TopicPartition], selection: TopicSelection) -> list[TopicPartition]:
    """The selected partitions, in order. Raises `Refused` where a named one does not exist."""
    keys = sorted(set(found))
    if selection.is_everything:
        return keys
    if selection.partitions:
        for topic, partition in selection.partitions:
            if (topic, partition) not in keys:
                raise Refused(f"assign: {topic}-{partition} is not in these log directories")
        return sorted(selection.partitions)
    topics = {topic for topic, _ in keys}
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        wanted = {topic for topic in topics - INTERNAL_TOPICS if pattern.fullmatch(topic)}
    else:
        wanted = set(selection.topics)
        for topic in selection.topics:
            if topic not in topics:
                raise Refused(f"subscribe: no partition of {topic} is in these log directories")
    chosen = [key for key in keys if key[0] in wanted]
    warn_of_gaps(chosen)
    return chosen


def matching(keys: Iterable[TopicPartition], selection: TopicSelection) -> list[TopicPartition]:
    """The partitions whose topic the selection names or whose name it matches. `assign` names partitions one by one,
    and those have to exist already.
    """
    if selection.is_everything or selection.partitions:
        return []
    if selection.pattern is None:
        return [key for key in keys if key[0] in selection.topics]
    pattern = re.compile(selection.pattern)
    return [key for key in keys if key[0] not in INTERNAL_TOPICS and pattern.fullmatch(key[0])]


def warn_of_gaps(chosen: Iterable[TopicPartition]) -> None:
    """Warn if partition numbers have a gap: the missing partitions may be in another directory."""
    there: dict[str, set[int]] = {}
    for topic, partition in chosen:
        there.setdefault(topic, set()).add(partition)
    for topic, numbers in there.items():
        missing = [str(number) for number in range(max(numbers)) if number not in numbers]
        if missing:
            warn(f"{topic}: partitions {', '.join(missing)} are not in these log directories and are not read")
