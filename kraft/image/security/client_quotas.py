"""The quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moldau.kraft.image.persistent_map import PersistentMap, hash_of_text
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import ClientQuotaRecord, EntityData
from moldau.security.quotas.entity import QuotaEntity, kafka_key_order


def hash_of_entity(entity: QuotaEntity) -> int:
    return hash_of_text(repr(entity.parts))


class ClientQuotasImage(NamedTuple):
    """The quotas by entity, and by key in Apache Kafka's order. An entity without quotas is left out."""

    by_entity: PersistentMap[QuotaEntity, Mapping[str, float]] = PersistentMap(hash_of_entity)

    def snapshot_records(self) -> Iterator[object]:
        for entity, values in self.by_entity.items():
            for key, value in values.items():
                yield record_of(entity, key, value)


class ClientQuotasDelta:
    """The quotas that records changed, by entity and key; None for a removed quota."""

    __slots__ = ("changed", "image")

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self.changed: dict[QuotaEntity, dict[str, float | None]] = {}

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = QuotaEntity.from_parts((part.entity_type, part.entity_name) for part in record.entity)
        self.changed.setdefault(entity, {})[record.key] = None if record.remove else record.value

    def apply(self) -> ClientQuotasImage:
        if not self.changed:
            return self.image
        updates: dict[QuotaEntity, Mapping[str, float] | None] = {}
        for entity, changes in self.changed.items():
            present = self.image.by_entity.get(entity) or {}
            merged = {key: value for key, value in {**present, **changes}.items() if value is not None}
            remaining = (key for key in present if key in merged)
            updates[entity] = {key: merged[key] for key in kafka_key_order(remaining, merged)} or None
        return ClientQuotasImage(self.image.by_entity.with_changes(updates))


def record_of(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """The record that sets a quota, or removes it if `value` is None."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts]
    return ClientQuotaRecord(entity=parts, key=key, value=0.0 if value is None else value, remove=value is None)
