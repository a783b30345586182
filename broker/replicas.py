"""The partitions that live on this broker, found by topic name or topic id."""

from __future__ import annotations

from collections.abc import Iterator

from replication.partition import Partition

Indexed = dict[int, Partition]
"""The local partitions of one topic, by index."""


class Traffic:
    """Records and bytes that went in and out."""

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def add(self, partition: Partition) -> None:
        self.messages_in += partition.messages_in
        self.bytes_in += partition.bytes_in
        self.bytes_out += partition.bytes_out


class Replicas:
    """Two views of the same partitions; a topic is known under both its name and its id, or not at all."""

    def __init__(self) -> None:
        self.by_name: dict[str, Indexed] = {}
        self.by_id: dict[bytes, Indexed] = {}
        self.gone = Traffic()
        """What deleted partitions had counted: sums over all never go back."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def __contains__(self, partition: Partition) -> bool:
        return self.get(partition.topic, partition.index) is partition

    def add(self, partition: Partition) -> None:
        indexed = self.by_name.setdefault(partition.topic, {})
        indexed[partition.index] = partition
        self.by_id[partition.topic_id] = indexed

    def get(self, topic: str, index: int) -> Partition | None:
        return self.by_name.get(topic, {}).get(index)

    def remove_topic(self, topic: str) -> list[Partition]:
        """Forget a topic; whoever waits for its partitions looks again and finds them gone."""
        partitions = list(self.by_name.pop(topic, {}).values())
        for partition in partitions:
            self.by_id.pop(partition.topic_id, None)
            self.gone.add(partition)
            partition.wake()
        return partitions
