"""A producer under acks=all whose requests hold several batches, some of them large, for partitions that one broker
leads.

A large batch is examined in an executor thread (`LOOP_RECORDS_MAX`; a plan sets it to a few records). The small batches
of the same request are appended at once, but their answers wait for the large one: meanwhile other producers append
behind them, and wait first. A partition may be named twice in a request: a broker here appends and answers each batch,
a small one before a large one.

The producer is not idempotent and does not retry: what is refused or lost with its connection stays in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.record_builder import Record, build_batch
from tests.support.cluster_clients import TRANSIENT, Bootstrap, within
from tests.support.history import History, Key, Send
from tests.support.node import Client, Closed

VERSION: Final = 9
PATIENCE_S: Final = 5.0
CHATS_MAX: Final = 40
"""The most requests on one connection."""
BATCHES_MAX: Final = 6
"""The most batches of a request besides one for each partition.

Large batches are examined one after the other, and delay the request.
"""
NOW_MS: Final = 1_767_225_600_000


class MixedProducer:
    def __init__(
        self,
        name: str,
        keys: Sequence[Key],
        bootstrap: Bootstrap,
        history: History,
        complaints: list[str],
        *,
        large: int,
        pause_s: float,
    ) -> None:
        """`keys`: the partitions of one topic. `large`: the records of a large batch; a small one has one record."""
        self.is_ending = False
        self.on_acknowledged: Callable[[Key, int, Client], None] = lambda key, offset, client: None
        """Called with the last offset of every acknowledged batch, and its connection."""
        self._name = name
        self._keys = keys
        self._bootstrap = bootstrap
        self._random = bootstrap.random
        self._history = history
        self._complaints = complaints
        self._large = large
        self._pause_s = pause_s
        self._connections = 0
        self._count = 0

    async def work(self) -> None:
        while not self.is_ending:
            try:
                leaders = {key: (await self._bootstrap.replicas(key))[0] for key in self._keys}
                leader_id = self._random.choice([*leaders.values()])
                if leader_id > 0:
                    await self._converse(leader_id, [key for key, each in leaders.items() if each == leader_id])
            except (Closed, TimeoutError):
                pass
            await self._bootstrap.back_off()

    async def _converse(self, leader_id: int, keys: list[Key]) -> None:
        """On one connection, until it breaks or something is refused."""
        client = await self._bootstrap.connect(leader_id)
        self._connections += 1
        try:
            for _ in range(CHATS_MAX):
                if self.is_ending or not await self._chat(client, keys):
                    return
                await asyncio.sleep(self._random.random() * 2 * self._pause_s)
        finally:
            client.close()

    async def _chat(self, client: Client, keys: list[Key]) -> bool:
        """One request. False if a batch of it was refused."""
        sent: list[tuple[Key, list[Send]]] = []
        data = []
        more = [self._random.choice(keys) for _ in range(self._random.randint(0, BATCHES_MAX))]
        for place, key in enumerate((*keys, *more)):
            sends, records = self._next_batch(key, place, self._large if self._random.random() < 0.4 else 1)
            sent.append((key, sends))
            data.append(PartitionProduceData(index=key[1], records=records))
        topic = TopicProduceData(name=keys[0][0], partition_data=data)
        client.send(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic]), VERSION)
        reply = await within(client.reply(), PATIENCE_S)
        is_taken = True
        for (key, sends), answer in zip(sent, reply.responses[0].partition_responses, strict=True):
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.NONE:
                for i, each in enumerate(sends):
                    each.acknowledge(answer.base_offset + i)
                self.on_acknowledged(key, answer.base_offset + len(sends) - 1, client)
                continue
            is_taken = False
            if error not in TRANSIENT:
                self._complaints.append(f"{self._name}.{self._connections} was refused: {error.name}")
        return is_taken

    def _next_batch(self, key: Key, place: int, count: int) -> tuple[list[Send], bytes]:
        """The next batch.

        In the history each slot of a request is a producer of its own, because only the order between requests is
        known.
        """
        producer = f"{self._name}-{key[1]}.{place}.{self._connections}"
        values = [f"{producer}/{self._count + i}" for i in range(count)]
        self._count += count
        sends = [self._history.send(producer, key, value) for value in values]
        return sends, build_batch([Record(value=value.encode(), timestamp=NOW_MS) for value in values])
