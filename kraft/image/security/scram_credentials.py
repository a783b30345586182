"""The SCRAM credentials of users, one for each user and mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from moldau.kraft.image.persistent_map import PersistentMap, hash_of_text
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from moldau.security.sasl.scram.credential import ScramCredential, ScramForm, form_of


class ScramKey(NamedTuple):
    """The key of a credential: a user and the code of a SCRAM mechanism."""

    user: str
    mechanism: int


def hash_of_key(key: ScramKey) -> int:
    return hash_of_text(key.user) + key.mechanism


class ScramImage(NamedTuple):
    """Credentials by user and mechanism."""

    credentials: PersistentMap[ScramKey, ScramCredential] = PersistentMap(hash_of_key)
    forms: Mapping[int, Mapping[ScramForm, int]] = MappingProxyType({})
    """The number of credentials of each form, by mechanism. The answer to an unknown user uses one of these forms."""

    def snapshot_records(self) -> Iterator[object]:
        for key, credential in self.credentials.items():
            yield record_of(key, credential)


class ScramDelta:
    """The credentials that records changed, by key; None for a removed credential."""

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
        if not self.changed:
            return self.image
        before = self.image.credentials
        forms = {mechanism: dict(counts) for mechanism, counts in self.image.forms.items()}
        for key, credential in self.changed.items():
            counts = forms.setdefault(key.mechanism, {})
            former = before.get(key)
            for each, change in ((former, -1), (credential, 1)):
                if each is not None:
                    form = form_of(each)
                    counts[form] = counts.get(form, 0) + change
                    if not counts[form]:
                        del counts[form]
        return ScramImage(
            before.with_changes(self.changed), {mechanism: counts for mechanism, counts in forms.items() if counts}
        )


def record_of(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=key.user,
        mechanism=key.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
