"""Writes into topics that come and go, each record with the topic that it is meant for, and reads what is there.

By id a record reaches that topic or none. By name it may reach a later topic of that name; and an earlier one too,
because a broker finds the topic of a name in its own metadata, which may lag behind the creation that the writer was
told of (as in Apache Kafka). Its connections outlive the topics: what a broker remembers of a connection may be of the
former one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from tests.support.cluster_admin import Made
from tests.support.cluster_clients import Bootstrap, within
from tests.support.node import Client, Closed, fetch_request, produce_request

BATCHES: Final = 4
"""The number of batches that are written to one partition at a time."""
PARTITIONS: Final = 2
PATIENCE_S: Final = 2.0
BY_ID, BY_NAME = 13, 9
"""The versions of Produce with topic ids and with topic names."""
FETCH_BY_ID: Final = 17
SEPARATOR: Final = "|"


def value_of(made: Made, version: int, count: int) -> bytes:
    return SEPARATOR.join(("meant for", made.id.hex(), "id" if version == BY_ID else "name", str(count))).encode()


def misplaced(value: bytes, topic_id: bytes, names: Mapping[bytes, str]) -> str | None:
    """Why a record does not belong into its topic; None if it does. `names`: the names of topics by id."""
    what, meant_for, how, _ = value.decode().split(SEPARATOR)
    if what != "meant for":
        return f"{value!r} was written by nobody"
    meant_id = bytes.fromhex(meant_for)
    if meant_id == topic_id:
        return None
    if how == "name" and names[meant_id] == names[topic_id]:
        return None
    return f"{value!r} was written for another topic than {topic_id.hex()}"


class TopicWriter:
    """One client for all topics of an administrator."""

    def __init__(self, bootstrap: Bootstrap, complaints: list[str], names: dict[bytes, str]) -> None:
        """`names`: of the topics that were written for, by their ids; this one adds its own."""
        self._names = names
        self._bootstrap = bootstrap
        self._random = bootstrap.random
        self._complaints = complaints
        self._clients: dict[int, Client] = {}
        self._count = 0

    async def write(self, made: Made) -> None:
        """Write a record.

        A refused or unanswered write is not repeated: the only check is that a record is in no wrong topic.
        """
        self._names[made.id] = made.name
        for index in range(PARTITIONS):
            node_id = -1
            try:
                node_id, _ = await self._bootstrap.replicas((made.name, index))
                if node_id > 0:
                    await self._converse(await self._client(node_id), made, index)
            except (Closed, TimeoutError):
                client = self._clients.pop(node_id, None)
                if client is not None:
                    client.close()

    async def _client(self, node_id: int) -> Client:
        client = self._clients.get(node_id)
        if client is None:
            client = self._clients[node_id] = await self._bootstrap.connect(node_id)
        return client

    async def _converse(self, client: Client, made: Made, index: int) -> None:
        version = self._random.choice((BY_ID, BY_NAME))
        for _ in range(self._random.randint(1, BATCHES)):
            acks = self._random.choice((-1, -1, 0, 1))
            values = [value_of(made, version, self._count + i) for i in range(self._random.randint(1, 3))]
            self._count += len(values)
            topic = made.id if version == BY_ID else made.name
            data = build_batch([Record(value=each, timestamp=1_767_225_600_000) for each in values])
            request = produce_request(topic, data, partition=index, acks=acks)
            client.send(request, version, is_answered=acks != 0)
            if acks:
                reply = await within(client.reply(), PATIENCE_S)
                if reply.responses[0].partition_responses[0].error_code:
                    return
        await self._read(client, made, index)

    async def _read(self, client: Client, made: Made, index: int) -> None:
        request = fetch_request([(made.id, index, 0)], max_wait_ms=0)
        reply = await within(client.ask(request, FETCH_BY_ID), PATIENCE_S)
        data = reply.responses[0].partitions[0]
        if data.error_code != ErrorCode.NONE:
            return
        stored = bytes(data.records or b"")
        for place, header in iterate_batches(stored):
            for record in records_of(stored, place, header):
                wrong = misplaced(record.value or b"", made.id, self._names)
                if wrong is not None:
                    self._complaints.append(f"read of {made.name}-{index}: {wrong}")
