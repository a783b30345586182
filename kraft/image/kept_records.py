"""Records of domains that this node does not act on: kept by key, so that a snapshot gives them back unchanged.

Client quotas, access control entries, SCRAM credentials and delegation tokens. A domain that this node
begins to act on gets a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from protocol.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

Key = tuple[object, ...]
KEPT = (
    ClientQuotaRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)


def key_and_value(record: object) -> tuple[Key, object | None]:
    """What a record sets, and to what; None removes."""
    match record:
        case ClientQuotaRecord(entity=entity, key=name, remove=remove):
            parts = ((part.entity_type, part.entity_name or "", part.entity_name is None) for part in entity)
            entity_key = tuple(sorted(parts))
            return ("quota", entity_key, name), None if remove else record
        case AccessControlEntryRecord(id=entry_id):
            return ("acl", entry_id), record
        case RemoveAccessControlEntryRecord(id=entry_id):
            return ("acl", entry_id), None
        case UserScramCredentialRecord(name=name, mechanism=mechanism):
            return ("scram", name, mechanism), record
        case RemoveUserScramCredentialRecord(name=name, mechanism=mechanism):
            return ("scram", name, mechanism), None
        case DelegationTokenRecord(token_id=token_id):
            return ("token", token_id), record
        case RemoveDelegationTokenRecord(token_id=token_id):
            return ("token", token_id), None
    raise AssertionError(f"{type(record).__name__} is not a kept record")


class KeptImage(NamedTuple):
    """Records by key."""

    records: Mapping[Key, object] = MappingProxyType({})

    def snapshot_records(self) -> Iterator[object]:
        yield from self.records.values()


class KeptDelta:
    """What records changed; None for a key that was removed."""

    __slots__ = ("changed", "image")

    def __init__(self, image: KeptImage) -> None:
        self.image = image
        self.changed: dict[Key, object | None] = {}

    def replay(self, record: object) -> None:
        key, value = key_and_value(record)
        self.changed[key] = value

    def apply(self) -> KeptImage:
        if not self.changed:
            return self.image
        merged = {**self.image.records, **self.changed}
        return KeptImage({key: value for key, value in merged.items() if value is not None})
