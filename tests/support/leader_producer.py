"""A producer that asks for the acknowledgement of the leader alone (acks=1), or for none (acks=0), and does not retry.

What it is told is true of the leader's log at that moment; a leader that fails may take the record with it, so that in
a `History` all of it stays in doubt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from tests.simulation.invariants.leader_acknowledged import LeaderAnswers
from tests.support.cluster_clients import TRANSIENT, Bootstrap, within
from tests.support.history import History, Key
from tests.support.node import Client, Closed, produce_request

VERSION: Final = 9
PATIENCE_S: Final = 3.0
UNANSWERED_SHARE: Final = 0.2
CHATS_MAX: Final = 40
"""The most requests on one connection."""


class Shape(NamedTuple):
    in_flight: int = 5
    batch_records_max: int = 3
    pause_s: float = 0.1
    padding: int = 0
    """Additional bytes of each value."""
    now_ms: int = 1_767_225_600_000


class LeaderProducer:
    def __init__(
        self, name: str, key: Key, bootstrap: Bootstrap, history: History | None, answers: LeaderAnswers, shape: Shape
    ) -> None:
        """`history`: None if no reader reads the partition."""
        self.is_ending = False
        self._name = name
        self._key = key
        self._bootstrap = bootstrap
        self._random = bootstrap.random
        self._history = history
        self._answers = answers
        self._shape = shape
        self._connections = 0
        self._count = 0

    async def work(self) -> None:
        while not self.is_ending:
            try:
                _, client = await self._connect()
                try:
                    await self._converse(client)
                finally:
                    self._answers.forget(client)
                    client.close()
            except (Closed, TimeoutError):
                pass
            await self._bootstrap.back_off()

    async def _connect(self) -> tuple[int, Client]:
        while not self.is_ending:
            leader_id, _ = await self._bootstrap.replicas(self._key)
            if leader_id > 0:
                return leader_id, await self._bootstrap.connect(leader_id)
            await self._bootstrap.back_off()
        raise Closed

    async def _converse(self, client: Client) -> None:
        self._connections += 1
        in_flight: deque[None] = deque()
        for _ in range(CHATS_MAX):
            while len(in_flight) < self._random.randint(1, self._shape.in_flight):
                acks = 0 if self._random.random() < UNANSWERED_SHARE else 1
                data = self._next_batch()
                request = produce_request(self._key[0], data, partition=self._key[1], acks=acks)
                client.send(request, VERSION, is_answered=acks != 0)
                if acks:
                    self._answers.expect(client, self._key, data)
                    in_flight.append(None)
            while in_flight:
                reply = await within(client.reply(), PATIENCE_S)
                in_flight.popleft()
                error = ErrorCode(reply.responses[0].partition_responses[0].error_code)
                if error is not ErrorCode.NONE:
                    if error not in TRANSIENT:
                        self._answers.complain(f"{self._name}.{self._connections} was refused: {error.name}")
                    return
            if self.is_ending:
                return
            await asyncio.sleep(self._random.random() * 2 * self._shape.pause_s)

    def _next_batch(self) -> bytes:
        producer = f"{self._name}.{self._connections}"
        values = [
            f"{producer}/{self._count + i}" for i in range(self._random.randint(1, self._shape.batch_records_max))
        ]
        self._count += len(values)
        if self._history is not None:
            for value in values:
                self._history.send(producer, self._key, value)
        padding = b"." * self._shape.padding
        return build_batch([Record(value=value.encode() + padding, timestamp=self._shape.now_ms) for value in values])
