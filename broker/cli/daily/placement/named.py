"""The partitions that arguments name: TOPIC for all of a topic, or TOPIC:0,2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.failures import WrongArguments, unknown

if TYPE_CHECKING:
    from moldau.protocol.messages.metadata import MetadataResponsePartition

Found = dict[Partition, "MetadataResponsePartition"]


def named_partitions(client: Client, given: Sequence[str]) -> Found:
    """The metadata of the partitions that are named, of all for no name, in order. Raises `Failure`."""
    wanted: dict[str, list[int]] = {}
    for name, _, indexes in (each.partition(":") for each in given):
        wanted.setdefault(name, []).extend(_indexes(name, indexes))
    topics = client.known_topics(wanted) if given else client.topics(None)
    found: Found = {}
    for name, topic in sorted(topics.items()):
        partitions = {each.partition_index: each for each in topic.partitions}
        for index in wanted.get(name) or sorted(partitions):
            if index not in partitions:
                raise unknown("partition", f"{name}:{index}", [f"{name}:{each}" for each in partitions])
            found[name, index] = partitions[index]
    return found


def _indexes(name: str, text: str) -> list[int]:
    """The indexes in a text such as 0,2; none for an empty one. Raises `WrongArguments`."""
    try:
        return [int(each) for each in text.split(",")] if text else []
    except ValueError:
        raise WrongArguments(f"{name}:{text} is not TOPIC:PARTITION,...") from None


def by_topic(keys: Sequence[Partition]) -> dict[str, list[int]]:
    """The indexes of partitions, by topic."""
    found: dict[str, list[int]] = {}
    for name, index in keys:
        found.setdefault(name, []).append(index)
    return found
