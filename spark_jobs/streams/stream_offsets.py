"""The offsets of a streaming query, as its checkpoint has them: `{"topic": {"0": 23}}`, the JSON of Spark's Kafka
connector.

An offset is the next one to read. Topics and partitions are always sorted, because Spark compares the offsets of two
triggers as text.

The checkpoint also has the ids of the topics, as further names without partitions: `{"orders": {"0": 23},
"orders#4L6g3nShT-eMCtK--X86sw": {}}`. No topic has a name with `#`, and the connector reads no partition from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.refusals import Refused

StreamOffsets: TypeAlias = dict[TopicPartition, int]
OffsetsJson: TypeAlias = dict[str, dict[str, int]]
SEPARATOR: Final = "#"
"""The separator between the name of a topic and its id."""


def as_json(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None) -> OffsetsJson:
    """The offsets as JSON for Spark's checkpoint, with the ids of their topics if these are known."""
    topics: OffsetsJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    known = topic_ids or {}
    return topics | {f"{topic}{SEPARATOR}{known[topic]}": {} for topic in sorted(topics.keys() & known.keys())}


def topic_ids_in(written: OffsetsJson) -> dict[str, str]:
    """The ids of topics in the offsets of a checkpoint; empty if Spark's Kafka connector has written it."""
    return dict(name.split(SEPARATOR) for name in written if name.count(SEPARATOR) == 1)


def from_json(written: object) -> StreamOffsets:
    """Parse the offsets of a checkpoint. Raises `Refused` if they do not have this form."""
    found: StreamOffsets = {}
    if isinstance(written, dict) and all(isinstance(each, dict) for each in written.values()):
        for topic, partitions in written.items():
            for partition, offset in partitions.items():
                if not str(partition).isdecimal() or not isinstance(offset, int) or offset < 0:
                    break
                found[topic, int(partition)] = offset
            else:
                continue
            break
        else:
            return found
    raise Refused(f'checkpoint: {written} is not of the shape {{"topic": {{"0": 23}}}}: another source has written it')
