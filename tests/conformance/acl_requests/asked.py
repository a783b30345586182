"""A request as it is asked of both brokers, and how its reply is made comparable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from moldau.protocol.messages.describe_client_quotas import ValueData
from moldau.protocol.schema import ZERO_UUID, default_struct

T = TypeVar("T")

TOPICS: Final = ("orders", "hidden", "none")
"""Two that exist, of which ACLs name one, and one that does not."""
DELETED: Final = ("see", "see.not", "drop.not", "drop.unseen", "drop.unseen.not")
"""Topics that requests ask to delete: those whose names end in `not` do not exist. ACLs let the user describe the
topics that begin with `see` and delete those that begin with `drop`, and deny it to describe those of `drop.unseen`.
"""
CREATED: Final = (*TOPICS[:2], *(name for name in DELETED if not name.endswith("not")))
GROUP, OTHER_GROUP, TRANSACTION = "g", "zz", "tx"
ID_SIZE: Final = 16
UNKNOWN_ID: Final = b"\7" * 16
UNKNOWN_PRODUCER: Final = 987_654
IDEMPOTENT_PRODUCER: Final = 987_655
UNKNOWN_BROKER: Final = 77

CHANGING: Final = frozenset(
    {
        "cluster_id",
        "timestamp",
        "log_append_time_ms",
        "base_offset",
        "host",
        "port",
        "log_start_offset",
        "high_watermark",
        "last_stable_offset",
        "offset",
        "throttle_time_ms",
        "records",
        "end_offset",
        "controller_id",
        "brokers",
        "record_errors",
        "node_endpoints",
        "current_leader",
        "aborted_transactions",
        "producer_id",
        "log_dir",
        "size",
        "partition_size",
        "total_bytes",
        "usable_bytes",
        "group_state",
        "protocol_data",
        "node_id",
        "diverging_epoch",
        "synonyms",
        "configs",
        "value",
        "listeners",
        "current_voters",
        "observers",
        "nodes",
        "leader_epoch",
    }
)
"""Fields that differ between two brokers for other reasons than access."""


class Text(NamedTuple):
    """A text of Apache Kafka in whose place Moldau has another one on purpose."""

    pattern: str
    """A regular expression of the whole text."""
    ours: str
    reason: str


TEXTS: Final = (
    Text(
        r"Request Request\(processor=.*\) needs [A-Z_]+ permission\.",
        "Cluster authorization failed.",
        "it shows the object of the request as Java prints it, with its connection and its size",
    ),
)


def text_in_common(text: str) -> str:
    """The text that Moldau has in the place of one of Apache Kafka; any other text as it is."""
    return next((each.ours for each in TEXTS if re.fullmatch(each.pattern, text, re.DOTALL)), text)


class Asked(NamedTuple):
    """One request in one version."""

    request: object
    version: int

    @property
    def name(self) -> str:
        return f"{type(self.request).__name__.removesuffix('Request')} v{self.version}"


Requests = Iterator[Asked]


class Ids:
    """The topic ids of one broker."""

    def __init__(self, by_name: Mapping[str, bytes]) -> None:
        self._by_name = by_name
        self._names = {topic_id: name for name, topic_id in by_name.items()}
        self._names |= {ZERO_UUID: "no id", UNKNOWN_ID: "an unknown id"}

    def of(self, name: str) -> bytes:
        return self._by_name.get(name, UNKNOWN_ID)

    def shown(self, data: bytes) -> str:
        """The name of the topic instead of its id; ids that a broker has just made up are all the same."""
        return self._names.get(data, "a new id" if len(data) == ID_SIZE else data.hex())


def made(cls: type[T], **fields: object) -> T:
    """A message with these fields, and the defaults of the schema for the others."""
    message = default_struct(cls)
    for name, value in fields.items():
        assert name in getattr(cls, "__slots__", ()), f"{cls.__name__} has no {name}"
        setattr(message, name, value)
    return message


def in_versions(first: int, last: int, cls: type[object], **fields: object) -> Requests:
    """The same request in each version."""
    for version in range(first, last + 1):
        yield Asked(made(cls, **fields), version)


def comparable(value: object, ids: Ids) -> object:
    """What both brokers must answer alike, as JSON has it; the order within a list is chance."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ids.shown(bytes(value))
    if isinstance(value, str):
        return text_in_common(value)
    if value is None:
        return value
    if isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return int(value)  # without the name that an enumeration gives
    if isinstance(value, Sequence) and value and isinstance(value[0], ValueData):
        return [(each.key, each.value) for each in value]  # quotas have an order
    if isinstance(value, Sequence):
        return sorted((comparable(each, ids) for each in value), key=repr)
    slots: Sequence[str] = getattr(type(value), "__slots__", ())
    return {name: comparable(getattr(value, name), ids) for name in slots if name not in CHANGING}
