"""The entities to which quotas belong, and the keys and values that they may have (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from moldau.protocol.late_tuple import NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
FRACTION_MAX: Final = 1e-6
"""The maximum difference of a value from a whole number for a key that requires a whole number."""


class QuotaEntity(NamedTuple):
    """A quota entity: a user, a client id, both, or an address. A part with the name None is the default for all users,
    client ids or addresses that have no quota of their own.
    """

    parts: tuple[tuple[str, str | None], ...]
    """The parts (type, name), sorted by type."""

    @classmethod
    def from_parts(cls, parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
        """Make an entity of parts (type, name). If a type is given twice, its last part is used."""
        return cls(tuple(sorted(dict(parts).items())))

    def __str__(self) -> str:
        """The entity as Apache Kafka's messages write it."""
        entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in self.parts)
        return f"ClientQuotaEntity(entries={{{entries}}})"


class WholeNumber(NamedTuple):
    """The type of a quota key whose values must be whole numbers, from 1 to `last`."""

    name: str
    """The name of the type in messages."""
    last: int


_LONG: Final = WholeNumber("LONG", (1 << 63) - 1)
_INT: Final = WholeNumber("INT", (1 << 31) - 1)
CLIENT_KEYS: Final[dict[str, WholeNumber | None]] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The quota keys of users and client ids, with the type of their values; None if a value may be a fraction."""
IP_KEYS: Final[dict[str, WholeNumber | None]] = {CONNECTION_CREATION_RATE: _INT}
JAVA_HASH_BUCKETS: Final = {
    CONNECTION_CREATION_RATE: 0,
    REQUEST_PERCENTAGE: 7,
    PRODUCER_BYTE_RATE: 11,
    CONSUMER_BYTE_RATE: 12,
    CONTROLLER_MUTATION_RATE: 14,
}
"""The bucket of each quota key in a Java HashMap of 16 buckets. In a smaller map it is this number modulo the number of
buckets.
"""


def kafka_key_order(present: Iterable[str], changed: Iterable[str]) -> list[str]:
    """Sort the quota keys of an entity in the order in which Apache Kafka lists them.

    It is the order of a Java HashMap that was created for this number of keys; keys in one bucket are in the order in
    which they were added. `present` are the keys that the entity had, in this order; `changed` are the keys that a
    change sets.
    """
    keys = list(dict.fromkeys((*present, *sorted(changed, key=_place))))
    buckets = 2
    while len(keys) * 4 > buckets * 3:
        buckets *= 2
    return sorted(keys, key=lambda key: _place(key) % buckets)


def _place(key: str) -> int:
    return JAVA_HASH_BUCKETS.get(key, 0)


def refusal_of_entity(entity: QuotaEntity) -> str | None:
    """Return the error message for an entity that cannot have quotas; None if it can."""
    if not entity.parts:
        return "Invalid empty client quota entity"
    for kind, name in entity.parts:
        if kind not in ENTITY_TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    types = [kind for kind, _ in entity.parts]
    if IP in types and len(types) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    return None


def refusal_of_value(entity: QuotaEntity, key: str, value: float) -> str | None:
    """Return the error message if the entity cannot have this value of a quota key; None if it can."""
    keys = IP_KEYS if entity.parts[0][0] == IP else CLIENT_KEYS
    if key not in keys:
        return f"Invalid configuration key {key}"
    if not value > 0:
        # DIVERGES: Apache Kafka accepts NaN.
        return f"Quota {key} must be greater than 0"
    whole = keys[key]
    if whole is None:
        return None
    if value > whole.last or math.isinf(value):
        return f"Proposed value for {key} is too large for {'an' if whole is _INT else 'a'} {whole.name}."
    if abs(round(value) - value) > FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None
