"""The options of the jobs that read records: isolation, and pinned offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moldau.storage.checkpoints.text_checkpoint import TopicPartition

ISOLATION: Final = "kafka.isolation.level"
CHOICES: Final = ("startingtimestamp", "startingoffsetsbytimestamp", "endingtimestamp", "endingoffsetsbytimestamp")
"""The options whose values a plan replaces by the offsets that it has found."""


def committed_by_default(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a job. The data source reads uncommitted by default, as Spark's Kafka connector does; a job takes
    what it reads for the contents of the topic, so it reads committed unless the options choose.
    """
    has_choice = any(name.lower() == ISOLATION for name in options)
    return dict(options) if has_choice else {**options, ISOLATION: "read_committed"}


def isolation_of(options: Mapping[str, str]) -> str:
    """The isolation level that the options of a job choose."""
    chosen = next((value for name, value in options.items() if name.lower() == ISOLATION), "read_uncommitted")
    return chosen.lower()


def pinned_options(
    options: Mapping[str, str], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[str, str]:
    """The options that read these offsets, whatever times or offsets they have chosen before."""
    kept = {name: value for name, value in options.items() if name.lower() not in CHOICES}
    return kept | {"startingOffsets": offsets_as_json(starts), "endingOffsets": offsets_as_json(ends)}


def offsets_as_json(offsets: Mapping[TopicPartition, int]) -> str:
    """The JSON of the connector's startingOffsets option."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)
