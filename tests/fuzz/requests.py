"""Requests of every API in every version, made from the declarations; names that exist are among their values."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, cast

from moldau.broker.apis.api import Api
from moldau.protocol.compiler import encode
from moldau.protocol.frames import request_header
from moldau.protocol.schema import Field, WireType, fields_of
from tests.fuzz import batches
from tests.support.apis import APIS

NOW_MS = 1_700_000_000_000
TEXTS = (
    "",
    "x",
    ".",
    "..",
    "a/../b",
    "ž" * 3,
    "\U0001f600",
    "\0",
    "__consumer_offsets",
    "__cluster_metadata",
    "x" * 300,
)
INTEGERS = (
    0,
    0,
    1,
    1,
    2,
    3,
    -1,
    -2,
    100,
    0x7F,
    0x80,
    0x7FFF,
    0x10000,
    0x7FFFFFFF,
    -0x80000000,
    (1 << 63) - 1,
    -(1 << 63),
)
SETTINGS = ("retention.ms", "cleanup.policy", "segment.bytes", "compression.type", "max.message.bytes", "nonsense", "")
WAITS = ("max_wait_ms", "timeout_ms", "session_timeout_ms", "rebalance_timeout_ms")
BITS = {"b": 8, "h": 16, "i": 32, "q": 64, "H": 16, "I": 32}
ASKED = tuple(api for api in APIS if api.name != "UnregisterBroker")
"""Whoever may unregister a broker ends its service; that API gets random bytes alone."""
UNTOUCHED = "honest"
"""The topic and group of the client whose service is measured begin with this; no request names them."""


@dataclass
class Surroundings:
    """What the requests find at the broker."""

    topics: tuple[str, ...] = tuple(f"fuzz-{index}" for index in range(4))
    topic_ids: tuple[bytes, ...] = ()
    groups: tuple[str, ...] = tuple(f"group-{index}" for index in range(8))
    members: list[str] = field(default_factory=lambda: ["", "member"])


class RequestMaker:
    """Draws requests; the same seed draws the same ones."""

    def __init__(self, chance: random.Random, surroundings: Surroundings) -> None:
        self.chance = chance
        self.surroundings = surroundings

    def frame(self, api: Api[Any] | None = None) -> bytes:
        """A whole frame, its size not included."""
        api = api or self.chance.choice(ASKED)
        version = self.chance.randint(api.first, api.last)
        cls = api.request
        return self.header(api, version) + encode(self.message(cls, version), version)

    def header(self, api: Api[Any], version: int) -> bytes:
        client_id = self.chance.choice((None, b"", b"fuzz", b"\xff\xfe"))
        return request_header(api.request, version, self.chance.randrange(1 << 31), client_id)

    def message(self, cls: type[object], version: int) -> object:
        message = cls.__new__(cls)
        for each in fields_of(cls):
            setattr(message, each.name, self.field(each, version))
        self.tame(message)
        return message

    def tame(self, message: object) -> None:
        """What would end the attack or use up the disk by right is asked for seldom."""
        is_rare = self.chance.random() < 0.02
        if hasattr(message, "validate_only") and not is_rare:
            message.validate_only = True
        if hasattr(message, "resource_type") and not is_rare:
            message.resource_type = 2

    def field(self, each: Field, version: int) -> object:
        chance = self.chance
        if version in each.nullable and chance.random() < 0.15:
            return None
        if each.tag is not None and chance.random() < 0.5 and each.struct is None and not each.is_array:
            return each.default
        if each.is_array:
            return [self.value(each, version) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
        return self.value(each, version)

    def value(self, each: Field, version: int) -> object:
        if each.struct is not None:
            return self.message(each.struct, version)
        return self.primitive(cast("WireType", each.kind), each.name)

    def primitive(self, kind: WireType, name: str) -> object:
        chance = self.chance
        match kind:
            case WireType.BOOL:
                return chance.random() < 0.5
            case WireType.FLOAT64:
                return chance.choice((0.0, -1.0, float("nan"), float("inf")))
            case WireType.UUID:
                return chance.choice((*self.surroundings.topic_ids, bytes(16), bytes(15) + b"\1", chance.randbytes(16)))
            case WireType.STRING:
                return self.text(name)
            case WireType.BYTES:
                return chance.randbytes(chance.choice((0, 1, 20, 500)))
            case WireType.RECORDS:
                return self.records()
        return self.integer(kind, name)

    def integer(self, kind: WireType, name: str) -> int:
        chance = self.chance
        if name in WAITS and chance.random() < 0.95:
            return chance.choice((0, 1, 6000)) if "session" in name else chance.choice((0, 1, 10))
        if name == "num_partitions" or name == "count":
            return chance.choice((-1, 0, 1, 2, 1 << 30))
        bits = BITS[kind.value]
        raw = chance.choice(INTEGERS) if chance.random() < 0.9 else chance.getrandbits(64)
        is_signed = kind.value.islower()
        return (raw & ((1 << bits) - 1)) - ((1 << bits) if is_signed and raw >> (bits - 1) & 1 else 0)

    def text(self, name: str) -> str:
        chance, known = self.chance, self.surroundings
        if chance.random() < 0.15:
            return chance.choice(TEXTS)
        if "group" in name and "instance" not in name:
            return chance.choice(known.groups)
        if "member" in name:
            return chance.choice(known.members)
        if "protocol_type" in name:
            return "consumer"
        if name in ("config_key",) or (name == "name" and chance.random() < 0.2):
            return chance.choice(SETTINGS)
        if name in ("value", "config_value"):
            return chance.choice(("1", "-1", "", "compact", "delete", "zstd", "1000000000000000000000", "x" * 5000))
        return chance.choice((*known.topics, *known.topics, *known.groups, "range"))

    def records(self) -> bytes:
        dice = self.chance.random()
        if dice < 0.4:
            return batches.valid(self.chance, NOW_MS)
        if dice < 0.97:
            return batches.hostile(self.chance, NOW_MS)
        return self.chance.randbytes(100)
