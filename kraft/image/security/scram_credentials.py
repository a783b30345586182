"""The SCRAM credentials of users, one for each mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraft.image.persistent_map import PersistentMap, place_of_text
from protocol.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from security.sasl.scram.credential import ScramCredential


class ScramKey(NamedTuple):
    """The key of a credential: a user and the code of a mechanism."""

    user: str
    mechanism: int


def place_of_key(key: ScramKey) -> int:
    return place_of_text(key.user) + key.mechanism


class ScramImage(NamedTuple):
    """Credentials by user and mechanism."""

    credentials: PersistentMap[ScramKey, ScramCredential] = PersistentMap(place_of_key)

    def snapshot_records(self) -> Iterator[object]:
        for key, credential in self.credentials.items():
            yield record_of(key, credential)


class ScramDelta:
    """The credentials that records changed; None for a removed credential."""

    __slots__ = ("changed", "image")

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changed: dict[ScramKey, ScramCredential | None] = {}

    def replay(self, record: UserScramCredentialRecord) -> None:
        self.changed[ScramKey(record.name, record.mechanism)] = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def replay_remove(self, record: RemoveUserScramCredentialRecord) -> None:
        self.changed[ScramKey(record.name, record.mechanism)] = None

    def apply(self) -> ScramImage:
        return ScramImage(self.image.credentials.updated(self.changed)) if self.changed else self.image


def record_of(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=key.user,
        mechanism=key.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
