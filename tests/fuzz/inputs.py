"""The kinds of hostile input, each as the bytes that a connection sends, with how often it comes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from moldau.protocol.compiler import encode
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.primitives import uvarint
from tests.fuzz import batches
from tests.fuzz.mutation import mutate
from tests.fuzz.requests import RequestMaker
from tests.support.apis import APIS

PRODUCE = next(api for api in APIS if api.name == "Produce")
METADATA = next(api for api in APIS if api.name == "Metadata")
FLOOD_SIZE = 2_000_000


class Input(NamedTuple):
    """What to send, and whether the broker has reason to wait for more of it."""

    kind: str
    data: bytes
    is_partial: bool = False


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class InputMaker:
    """Draws inputs of all kinds by their weights."""

    def __init__(self, chance: random.Random, requests: RequestMaker) -> None:
        self.chance = chance
        self.requests = requests
        self._kinds = list(KINDS)
        self._weights = [KINDS[kind][0] for kind in KINDS]

    def draw(self) -> Input:
        (kind,) = self.chance.choices(self._kinds, self._weights)
        return KINDS[kind][1](self, kind)

    def valid(self, kind: str) -> Input:
        return Input(kind, framed(self.requests.frame()))

    def mutated(self, kind: str) -> Input:
        """A valid frame changed behind its header, its size brought up to date."""
        frame = self.requests.frame()
        return Input(kind, framed(frame[:8] + mutate(self.chance, frame[8:])))

    def mutated_header(self, kind: str) -> Input:
        frame = self.requests.frame()
        return Input(kind, framed(mutate(self.chance, frame[:14]) + frame[14:]) if frame else b"")

    def random_bytes(self, kind: str) -> Input:
        return Input(kind, self.chance.randbytes(self.chance.choice((1, 4, 20, 300))), is_partial=True)

    def random_frame(self, kind: str) -> Input:
        """Random bytes behind the header of an API that is served."""
        api = self.chance.choice(APIS)
        head = self.requests.header(api, self.chance.randint(api.first, api.last))
        return Input(kind, framed(head + self.chance.randbytes(self.chance.choice((0, 1, 10, 100, 2000)))))

    def truncated(self, kind: str) -> Input:
        """The beginning of a frame whose rest never comes."""
        whole = framed(self.requests.frame())
        return Input(kind, whole[: self.chance.randrange(len(whole))], is_partial=True)

    def oversized(self, kind: str) -> Input:
        """A frame that claims more than it may have, or less than nothing."""
        size = self.chance.choice((0, -1, -(1 << 31), (1 << 31) - 1, (100 << 20) + 1))
        return Input(kind, struct.pack(">i", size) + self.requests.frame())

    def large_claim(self, kind: str) -> Input:
        """A frame that claims as much as it may have, and sends little of it."""
        return Input(kind, struct.pack(">i", 100 << 20) + self.requests.frame(), is_partial=True)

    def batch(self, kind: str) -> Input:
        return Input(kind, framed(self.produce(batches.hostile(self.chance, 1_700_000_000_000))))

    def bomb(self, kind: str) -> Input:
        return Input(kind, framed(self.produce(self.chance.choice(batches.bombs()))))

    def flood(self, kind: str) -> Input:
        """Megabytes of the smallest items or tags there are."""
        if self.chance.random() < 0.5:
            count = FLOOD_SIZE // 2
            body = self.requests.header(METADATA, 1) + count.to_bytes(4, "big") + b"\0\0" * count
        else:
            tags = self.chance.choice((1000, 60_000))
            topic = bytes(16) + b"\0" + uvarint(tags) + b"\x09\0" * tags
            count = FLOOD_SIZE // len(topic)
            body = self.requests.header(METADATA, 12) + uvarint(count + 1) + topic * count + b"\0\0\0"
        return Input(kind, framed(body))

    def produce(self, records: bytes) -> bytes:
        version = self.chance.randint(7, 12)
        data = PartitionProduceData(index=self.chance.randrange(2), records=records)
        topic = TopicProduceData(
            name=self.chance.choice(self.requests.surroundings.topics), topic_id=bytes(16), partition_data=[data]
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic])
        return self.requests.header(PRODUCE, version) + encode(request, version)


KINDS: dict[str, tuple[float, Callable[[InputMaker, str], Input]]] = {
    "valid request": (12, InputMaker.valid),
    "mutated request": (40, InputMaker.mutated),
    "mutated header": (6, InputMaker.mutated_header),
    "random bytes": (8, InputMaker.random_bytes),
    "random frame": (10, InputMaker.random_frame),
    "truncated frame": (6, InputMaker.truncated),
    "oversized frame": (4, InputMaker.oversized),
    "large claim": (2, InputMaker.large_claim),
    "hostile batch": (12, InputMaker.batch),
    "compression bomb": (0.03, InputMaker.bomb),
    "flood of items": (0.02, InputMaker.flood),
}
