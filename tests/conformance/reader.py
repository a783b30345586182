"""A member of a group of any kind in the driver of Java: it reads, commits and stands still as the scenario says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tests.conformance.client import Client


class Reader:
    """`kind`: classic, consumer, share or streams. A topic that begins and ends with a slash is an expression."""

    def __init__(
        self, client: Client, name: str, kind: str, group: str, topic: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._client = client
        self._topic = topic
        client.call("reader_open", reader=name, kind=kind, group=group, topic=topic, settings=dict(settings or {}))

    def poll(self, count: int = 1, wait_s: float = 30) -> list[int]:
        """The offsets of what it gets until there are `count`, or the time is over; of one poll in a share group."""
        return cast(
            "list[int]", self._client.call("reader_poll", reader=self.name, count=count, wait_ms=int(wait_s * 1e3))
        )

    def commit(self, offset: int, topic: str | None = None) -> None:
        """Commits an offset of partition 0. Raises `Refused`."""
        self._client.call("reader_commit", reader=self.name, topic=topic or self._topic, offset=offset)

    def acknowledge(self, verdict: str, offset: int = -1) -> None:
        """ACCEPT, RELEASE or REJECT of what the last poll of a share group brought, or of one record of it."""
        self._client.call("reader_acknowledge", reader=self.name, verdict=verdict, offset=offset)

    def close(self) -> None:
        self._client.call("reader_close", reader=self.name)
