"""A member of a share group: the driver polls it in the background, and decides by the value of each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tests.conformance.client import Client

ACCEPT, LATE, REJECT, RELEASE = "accept", "late", "reject", "release"
"""The ends of values, each after a number and a colon. `late`: released once, then accepted; `release`: every time."""


@dataclass(frozen=True, slots=True)
class Delivery:
    partition: int
    offset: int
    count: int
    value: str
    at_ms: int
    """The wall clock of the machine, on which all members run."""

    @property
    def place(self) -> tuple[int, int]:
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
        """`count`: the records that one poll may bring, where the client has such a limit."""
        self.name = name
        self.deliveries: list[Delivery] = []
        self.confirmed: list[tuple[tuple[int, int], int]] = []
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

    def close(self) -> None:
        """It leaves the group once what it has is acknowledged."""
        self._note(self._client.call("share_close", member=self.name))
