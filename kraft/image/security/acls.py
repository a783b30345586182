"""The ACLs of the cluster, by the id in their record."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.kraft.image.persistent_map import PersistentMap, hash_of_uuid
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from moldau.security.acl.bindings import AclBinding


class AclsImage(NamedTuple):
    """The ACLs by id."""

    by_id: PersistentMap[bytes, AclBinding] = PersistentMap(hash_of_uuid)

    def snapshot_records(self) -> Iterator[object]:
        for entry_id, binding in self.by_id.items():
            yield record_of(entry_id, binding)


class AclsDelta:
    """The ACLs that records changed, by id; None for a removed ACL."""

    __slots__ = ("changed", "image")

    def __init__(self, image: AclsImage) -> None:
        self.image = image
        self.changed: dict[bytes, AclBinding | None] = {}

    def replay(self, record: AccessControlEntryRecord) -> None:
        self.changed[record.id] = AclBinding(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        self.changed[record.id] = None

    def apply(self) -> AclsImage:
        return AclsImage(self.image.by_id.with_changes(self.changed)) if self.changed else self.image


def record_of(entry_id: bytes, binding: AclBinding) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=entry_id,
        resource_type=binding.kind,
        resource_name=binding.name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )
