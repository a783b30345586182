"""A tiered storage as a source of segments: remote segments of a cluster, read without a broker.

docs/tiered_storage.md describes the objects. A broker knows the current segments from its metadata topic. Without a
broker the manifests show them: a manifest is written last and removed first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, TOPICS_PREFIX, parse_partition_prefix
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, decode_cluster_manifest
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import InvalidStorageUrl, ObjectNotFound, StorageMissing
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.origins.blocking_storage import BlockingStorage, storage_at
from moldau.tables.origins.port import PartitionOrigin
from moldau.tables.origins.tiered_listing import list_tiered
from moldau.tables.origins.tiered_partition import TieredPartition
from moldau.tables.origins.tiered_segments import TieredSegments
from moldau.tables.refusals import PlaceUnavailable, Refused

REMOTE_READ_COST: Final = 10
"""The cost of reading an offset from an object, relative to that from a local file, which is 1."""
OPENED_AT_ONCE: Final = 16
"""The most partitions whose segments are listed at the same time. Each takes three answers of the storage, one after
another."""


class TieredStore:
    """The `Origin` that reads from a tiered storage."""

    def __init__(
        self, address: StoreAddress, storage: BlockingStorage | None = None, topics: Collection[str] | None = None
    ) -> None:
        """Open the storage. `topics`: the names of the topics that are read; None if all may be. Raises `Refused` if
        there is no tiered storage at the address, and `RemoteStorageError`."""
        self.cost = REMOTE_READ_COST
        self._address = address
        self._topics = topics
        try:
            self._storage = storage or storage_at(address)
            self._listed_topics = self._storage.start_listing_directories([TOPICS_PREFIX])
            data = bytes(self._storage.get(CLUSTER_MANIFEST_KEY, 0, MANIFEST_SIZE_MAX))
        except (ObjectNotFound, StorageMissing) as problem:
            raise PlaceUnavailable(f"path: {address} is not a tiered storage: {problem}") from None
        except InvalidStorageUrl as problem:
            raise Refused(f"path: {problem}") from None
        cluster_id = decode_cluster_manifest(CLUSTER_MANIFEST_KEY, data)
        self.cluster_id: str | None = cluster_id
        self._found: dict[TopicPartition, RemotePartition] | None = None
        self._others: dict[TopicPartition, RemotePartition] = {}
        """The partitions of a second topic that has the same name as a topic in `_found`."""

    def partitions(self) -> Mapping[TopicPartition, RemotePartition]:
        """The partitions in the storage: those of the topics that are read, or of all topics if one of these is not in
        the storage."""
        if self._found is None:
            self._found = self._partitions()
        return self._found

    def missing(self) -> Mapping[TopicPartition, str]:
        """Return no partition, because a storage has only the partitions that were copied, and does not tell which
        others exist."""
        return {}

    def open(self, keys: Sequence[TopicPartition]) -> list[PartitionOrigin]:
        """List the segments of these partitions. Raises `Refused` if two topics have the name of one of the partitions,
        and what `partitions` raises."""
        known = self.partitions()
        chosen: list[RemotePartition] = []
        for key in keys:
            partition, other = known.get(key), self._others.get(key)
            if partition is not None and other is not None:
                raise Refused(
                    f"path: {self._address} has two topics named {key[0]}, {uuid_text(partition.topic_id)} and "
                    f"{uuid_text(other.topic_id)}: one of them was deleted, and its segments are still there"
                )
            if partition is not None:
                chosen.append(partition)
        if len(chosen) <= 1:
            return [self._open(each) for each in chosen]
        with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(chosen)), "moldau listing") as threads:
            return list(threads.map(self._open, chosen))

    def _open(self, partition: RemotePartition) -> PartitionOrigin:
        assert self.cluster_id is not None
        listed = list_tiered(self._storage, self.cluster_id, partition)
        return TieredPartition(self._storage, TieredSegments(self._address), partition, listed)

    def _partitions(self) -> dict[TopicPartition, RemotePartition]:
        prefixes = self._listed_topics.result()
        if self._topics is not None:
            named = {prefix: prefix.removeprefix(TOPICS_PREFIX).rpartition(".")[0] for prefix in prefixes}
            if set(self._topics) <= set(named.values()):
                prefixes = [prefix for prefix, name in named.items() if name in self._topics]
        found: dict[TopicPartition, RemotePartition] = {}
        for each in map(parse_partition_prefix, self._storage.list_directories(prefixes)):
            if each is not None and found.setdefault((each.topic, each.partition), each) != each:
                self._others[each.topic, each.partition] = each
        return found
