"""A member of a share group: the driver polls it in the background, and decides by the value of each record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tests.conformance.client import Client

ACCEPT, LATE, REJECT, RELEASE = "accept", "late", "reject", "release"
"""The ends of values, each after a number and a colon. `late`: released once, then accepted; `release`: every time."""

Place = tuple[int, int]
"""The partition and the offset of a record."""


@dataclass(frozen=True, slots=True)
class Delivery:
    partition: int
    offset: int
    count: int
    value: str
    at_ms: int
    """The wall clock of the machine, on which all members run."""

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    @property
    def verb(self) -> str:
        return self.value.partition(":")[2]

    @property
    def is_final(self) -> bool:
        """Whether its acknowledgement ends the record."""
        return self.verb in (ACCEPT, REJECT) or (self.verb == LATE and self.count > 1)


class ShareMember:
    def __init__(self, client: Client, name: str, group: str, topic: str, *, count: int) -> None:
        """`count`: the records that one poll may bring, if the client has such a limit."""
        self.name = name
        self.deliveries: list[Delivery] = []
        self.confirmed: list[tuple[Place, int]] = []
        """The places of records whose acknowledgement the broker confirmed, and when."""
        self._client = client
        client.call("share_open", member=name, group=group, topic=topic, count=count)

    def look(self) -> None:
        """Takes what happened since the last look."""
        self._note(self._client.call("share_state", member=self.name))

    def _note(self, state: object) -> None:
        told = cast("dict[str, list[dict[str, Any]]]", state)
        for each in told["delivered"] or ():
            self.deliveries.append(Delivery(each["p"], each["o"], each["n"], each["v"], each["t"]))
        self.confirmed += [((each["p"], each["o"]), each["t"]) for each in told["confirmed"] or ()]

    def look_before_death(self) -> None:
        """The last look before the driver is killed: what it would get from now on it does not acknowledge."""
        self._note(self._client.call("share_state", member=self.name, last=True))

    def close(self) -> None:
        """It leaves the group once what it has is acknowledged."""
        self._note(self._client.call("share_close", member=self.name))


def deliveries_by_place(members: Iterable[ShareMember]) -> dict[Place, list[Delivery]]:
    """Of each record its deliveries in their order."""
    by_place: dict[Place, list[Delivery]] = defaultdict(list)
    for member in members:
        for delivery in member.deliveries:
            by_place[delivery.place].append(delivery)
    for delivered in by_place.values():
        delivered.sort(key=lambda each: (each.at_ms, each.count))
    return by_place


def confirmed_ends(members: Iterable[ShareMember]) -> dict[Place, tuple[int, int]]:
    """The confirmed acknowledgements that end a record: when, and of which delivery count."""
    ends: dict[Place, tuple[int, int]] = {}
    for member in members:
        own = deliveries_by_place([member])
        for place, at_ms in member.confirmed:
            before = [each for each in own[place] if each.at_ms <= at_ms]
            if before and before[-1].is_final:
                ends[place] = at_ms, before[-1].count
    return ends


def deliveries_after_end(members: Sequence[ShareMember]) -> list[Delivery]:
    """Those that came after an acknowledgement was confirmed that ends the record: there must be none."""
    ends, by_place = confirmed_ends(members), deliveries_by_place(members)
    return [
        each
        for place, (at_ms, count) in ends.items()
        for each in by_place[place]
        if each.count > count or each.at_ms > at_ms
    ]
