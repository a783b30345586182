"""A member of a consumer group: the driver polls it in the background, the scenario watches."""

from __future__ import annotations

from typing import cast

from tests.conformance.client import Client, Pair
from tests.conformance.record import Json, Record, from_wire


class Member:
    """Opened in a group; it commits what it consumed when partitions are taken from it, on `commit` and on `close`."""

    def __init__(
        self,
        client: Client,
        name: str,
        group: str,
        topic: str,
        *,
        strategy: str = "range",
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
    ) -> None:
        self.name = name
        self.records: list[Record] = []
        self.assignment: frozenset[Pair] = frozenset()
        self.revoked: list[Pair] = []
        self.rebalances = 0
        self._client = client
        client.call(
            "member_open",
            member=name,
            group=group,
            topic=topic,
            strategy=strategy,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
        )

    def look(self) -> None:
        """Takes the records that came since the last look, and the assignment as it stands."""
        self._note(cast("dict[str, Json]", self._client.call("member_state", member=self.name)))

    def _note(self, state: dict[str, Json]) -> None:
        self.records += [from_wire(wire) for wire in cast("list[Json]", state["records"])]
        self.assignment = frozenset((topic, part) for topic, part in cast("list[Pair]", state["assignment"]))
        self.revoked += [(topic, part) for topic, part in cast("list[Pair]", state["revoked"])]
        self.rebalances = cast("int", state["rebalances"])

    def close(self) -> None:
        """Some drivers tell what came until the end; with the others only what was looked at is known."""
        state = self._client.call("member_close", member=self.name)
        if state is not None:
            self._note(cast("dict[str, Json]", state))
