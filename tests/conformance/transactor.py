"""What drivers have of transactions: a transactional producer, and a group's member that reads, writes and commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tests.conformance.client import Client
from tests.conformance.record import Record, from_wire, to_wire


class Transactor:
    """A transactional producer, initialised. No operation is asked for twice: a refusal is the answer."""

    def __init__(self, client: Client, name: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.name = name
        self._client = client
        client.call("transactor_open", transactor=name, id=transactional_id, timeout_ms=timeout_ms)

    def begin(self) -> None:
        self._client.call_once("transactor_begin", transactor=self.name)

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        """Returns when all are acknowledged, with the offset of each."""
        wire = [to_wire(record) for record in records]
        offsets = self._client.call_once("transactor_send", transactor=self.name, topic=topic, records=list(wire))
        return cast("list[int]", offsets)

    def commit(self) -> None:
        self._client.call_once("transactor_end", transactor=self.name, commit=True)

    def abort(self) -> None:
        self._client.call_once("transactor_end", transactor=self.name, commit=False)

    def close(self) -> None:
        self._client.call_once("transactor_close", transactor=self.name)


class Pipeline:
    """The only member of a group, with a transactional producer: each step is a transaction of its own."""

    def __init__(self, client: Client, name: str, transactional_id: str, group: str, topic: str) -> None:
        self.name = name
        self._client = client
        client.call("pipeline_open", pipeline=name, id=transactional_id, group=group, topic=topic)

    def step(self, count: int, into: str, end: str) -> list[Record]:
        """Reads `count` records and writes them to the same partitions of `into`, with the group's offsets in the same
        transaction. `end`: commit, abort, or leave it open. Returns what was read."""
        read = self._client.call_once("pipeline_step", pipeline=self.name, count=count, into=into, end=end)
        assert isinstance(read, list)
        return [from_wire(wire) for wire in read]

    def close(self) -> None:
        self._client.call_once("pipeline_close", pipeline=self.name)
