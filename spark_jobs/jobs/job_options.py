"""The options of the jobs that read records: the isolation level, and fixed offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moldau.storage.checkpoints.text_checkpoint import TopicPartition

ISOLATION: Final = "kafka.isolation.level"
PINNED_OPTIONS: Final = (
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "endingtimestamp",
    "endingoffsetsbytimestamp",
)
"""The options whose values a plan replaces by the offsets that it has found."""


def committed_by_default(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a job, with read_committed as the isolation level unless they choose one.

    Without a choice the data source reads uncommitted records, as Spark's Kafka connector does. A job needs the
    committed contents of the topic.
    """
    has_choice = any(name.lower() == ISOLATION for name in options)
    return dict(options) if has_choice else {**options, ISOLATION: "read_committed"}


def isolation_of(options: Mapping[str, str]) -> str:
    """The isolation level that the options of a job choose; without a choice the default of the data source."""
    chosen = next((value for name, value in options.items() if name.lower() == ISOLATION), "read_uncommitted")
    return chosen.lower()


def pinned_options(
    options: Mapping[str, str], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """Return the options with these start and end offsets. They replace all options that choose times or offsets."""
    kept = {name: value for name, value in options.items() if name.lower() not in PINNED_OPTIONS}
    return kept | {"startingOffsets": offsets_as_json(starts), "endingOffsets": offsets_as_json(ends)}


def offsets_as_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as JSON, as in the option startingOffsets of Spark's Kafka connector."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)
