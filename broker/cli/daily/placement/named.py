"""The partitions that arguments name: `TOPIC` for all partitions of a topic, or `TOPIC:0,2` for some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.failures import WrongArguments, no_partition

if TYPE_CHECKING:
    from moldau.protocol.messages.metadata import MetadataResponsePartition

Found = dict[Partition, "MetadataResponsePartition"]


def named_partitions(client: Client, given: Sequence[str]) -> Found:
    """The metadata of the named partitions, sorted; of all partitions if none is named. Raises `Failure`."""
    wanted: dict[str, set[int] | None] = {}
    for name, has_indexes, text in (each.partition(":") for each in given):
        known = wanted.get(name, set())
        indexes = _indexes(name, text) if has_indexes else None
        wanted[name] = None if known is None or indexes is None else known | indexes
    topics = client.known_topics(wanted) if given else client.topics(None)
    found: Found = {}
    for name, topic in sorted(topics.items()):
        partitions = {each.partition_index: each for each in topic.partitions}
        chosen = wanted.get(name)
        for index in sorted(partitions if chosen is None else chosen):
            if index not in partitions:
                raise no_partition(name, index, len(partitions))
            found[name, index] = partitions[index]
    return found


def _indexes(name: str, text: str) -> set[int]:
    """Parse partition indexes in a text such as 0,2. `name` is the topic in the message. Raises `WrongArguments`."""
    try:
        return {int(each) for each in text.split(",")}
    except ValueError:
        raise WrongArguments(f"{name}:{text} is not of the form TOPIC:0,1,2") from None


def grouped_by_topic(keys: Sequence[Partition]) -> dict[str, list[int]]:
    """Group partitions by topic: the indexes of each."""
    found: dict[str, list[int]] = {}
    for name, index in keys:
        found.setdefault(name, []).append(index)
    return found
