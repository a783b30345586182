"""Finds the quota that applies to a client: of all quotas that match the client, the one with the most specific entity.

| order | user    | client id |
|-------|---------|-----------|
| 1     | its own | its own   |
| 2     | its own | default   |
| 3     | its own |           |
| 4     | default | its own   |
| 5     | default | default   |
| 6     | default |           |
| 7     |         | its own   |
| 8     |         | default   |

Two clients share a rate if they are equal in each part of the entity: user, client id, or both. This holds for a
default, too: each user, or each client id, has its own rate under a default quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.security.quotas.entity import CLIENT_ID, CONNECTION_CREATION_RATE, IP, USER, QuotaEntity

REMEMBERED_MAX: Final = 10_000
"""The maximum number of cached results of `limit_of_client`. Clients choose their ids, so there may be many."""
CLIENT_ID_LENGTH_MAX: Final = 256
"""The maximum length (characters) of a client id that is cached, or kept whole in the tags of a rate: a client may send
any text of up to 32 KiB, and another one in each request.

DIVERGES: a longer client id has its begin and its digest in the tags, which metrics show. Apache Kafka keeps every id
for an hour, whatever its length.
"""
SHORTENED_LENGTH: Final = 64
"""The length (characters) of the begin of a long client id that stays in the tags."""


class QuotaTags(NamedTuple):
    """The clients that share one rate: those with this user and this client id. An empty part matches every client."""

    user: str
    client_id: str


class ClientLimit(NamedTuple):
    """The value of the quota that applies to a client, and the tags that say which clients share its rate."""

    value: float
    tags: QuotaTags


class QuotaLimits:
    """All quotas of the metadata. `stamp` is a number that grows with every change."""

    def __init__(self) -> None:
        self.stamp = 0
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._known: dict[tuple[str, str, str], ClientLimit | None] = {}
        self._counts: Counter[str] = Counter()
        """The number of entities that have a quota, by quota key."""

    def apply_changes(self, entities: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Set the quotas of changed entities; None for an entity without quotas."""
        for entity, values in entities.items():
            self._counts.subtract(self._quotas.pop(entity, {}).keys())
            if values:
                self._quotas[entity] = values
                self._counts.update(values.keys())
        self._known.clear()
        self.stamp += 1

    def are_set(self, key: str) -> bool:
        """Whether any entity has a quota with this key."""
        return self._counts[key] > 0

    def limit_of_client(self, key: str, user: str, client_id: str) -> ClientLimit | None:
        """The quota with this key that applies to a client; None if the client has no such quota. `user` is the name of
        the client's principal."""
        if len(client_id) > CLIENT_ID_LENGTH_MAX:
            return self._found(key, user, client_id)
        asked = (key, user, client_id)
        if asked not in self._known:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[asked] = self._found(key, user, client_id)
        return self._known[asked]

    def _found(self, key: str, user: str, client_id: str) -> ClientLimit | None:
        for entity, tags in _by_precedence(user, client_id):
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                return ClientLimit(value, tags)
        return None

    def limit_of_address(self, address: str) -> float | None:
        """The maximum number of connections that an address may make in a second; None if there is no limit."""
        for name in (address, None):
            value = self._quotas.get(QuotaEntity.from_parts([(IP, name)]), {}).get(CONNECTION_CREATION_RATE)
            if value is not None:
                return value
        return None


def _by_precedence(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, QuotaTags]]:
    tag = client_id if len(client_id) <= CLIENT_ID_LENGTH_MAX else _shortened(client_id)
    for user_name in (user, None):
        for client_name in (client_id, None):
            yield QuotaEntity.from_parts([(USER, user_name), (CLIENT_ID, client_name)]), QuotaTags(user, tag)
        yield QuotaEntity.from_parts([(USER, user_name)]), QuotaTags(user, "")
    for client_name in (client_id, None):
        yield QuotaEntity.from_parts([(CLIENT_ID, client_name)]), QuotaTags("", tag)


def _shortened(client_id: str) -> str:
    from hashlib import sha256

    return f"{client_id[:SHORTENED_LENGTH]}… sha256:{sha256(client_id.encode()).hexdigest()}"
