"""The difference between two metadata images, for a node that replaces its image by that of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from moldau.kraft.image.configs import ConfigsDelta, ConfigsImage
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage
from moldau.kraft.image.persistent_map import PersistentMap
from moldau.kraft.image.security.client_quotas import ClientQuotasDelta, ClientQuotasImage
from moldau.kraft.image.topics import TopicsDelta, TopicsImage

K = TypeVar("K")
V = TypeVar("V")
Entries = Mapping[K, V] | PersistentMap[K, V]


def difference_between(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The delta that changes the image `before` into `after`."""
    delta = MetadataDelta(before)
    levels = {name: 0 for name in before.features.levels if name not in after.features.levels}
    delta.features.changed = {**levels, **changed_entries(before.features.levels, after.features.levels)}
    delta.cluster.brokers = changes_of_entries(before.cluster.brokers, after.cluster.brokers)
    delta.cluster.controllers = changes_of_entries(before.cluster.controllers, after.cluster.controllers)
    compare_topics(delta.topics, before.topics, after.topics)
    compare_configs(delta.configs, before.configs, after.configs)
    delta.next_producer_id = after.next_producer_id
    delta.acls.changed = changes_of_entries(before.acls.by_id, after.acls.by_id)
    delta.scram.changed = changes_of_entries(before.scram.credentials, after.scram.credentials)
    compare_quotas(delta.quotas, before.quotas, after.quotas)
    delta.tokens.changed = changes_of_entries(before.tokens.by_id, after.tokens.by_id)
    return delta


def compare_topics(delta: TopicsDelta, before: TopicsImage, after: TopicsImage) -> None:
    delta.deleted = {topic.id: topic for topic in before.by_id.values() if topic.id not in after.by_id}
    for topic in after.by_id.values():
        known = before.by_id.get(topic.id)
        if known is topic:
            continue
        if known is None:
            delta.created[topic.id] = topic.name
        touched = changed_entries(known.partitions if known is not None else {}, topic.partitions)
        if touched or known is None:
            delta.changed[topic.id] = touched


def compare_configs(delta: ConfigsDelta, before: ConfigsImage, after: ConfigsImage) -> None:
    for resource in before.by_resource:
        if resource not in after.by_resource:
            delta.forget(resource)
    for resource, settings in after.by_resource.items():
        touched = changes_of_entries(before.settings_of(resource.type, resource.name), settings)
        if touched:
            delta.changed[resource] = touched


def compare_quotas(delta: ClientQuotasDelta, before: ClientQuotasImage, after: ClientQuotasImage) -> None:
    for entity in {**dict.fromkeys(before.by_entity), **dict.fromkeys(after.by_entity)}:
        touched = changes_of_entries(before.by_entity.get(entity) or {}, after.by_entity.get(entity) or {})
        if touched:
            delta.changed[entity] = touched


def changed_entries(before: Entries[K, V], after: Entries[K, V]) -> dict[K, V]:
    """The entries of `after` whose key is not in `before`, or has another value there."""
    return {key: value for key, value in after.items() if before.get(key) != value}


def changes_of_entries(before: Entries[K, V], after: Entries[K, V]) -> dict[K, V | None]:
    """The new values of all keys whose value differs; None for each key that `after` lacks."""
    gone: dict[K, V | None] = {key: None for key in before if key not in after}
    return gone | changed_entries(before, after)
