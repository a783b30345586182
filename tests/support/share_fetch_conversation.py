"""A conversation of two share consumers, drawn from a seed: the same requests to Apache Kafka and to this broker.

    python -m tests.support.share_fetch_conversation HOST:PORT TOPIC     prints a line for each request and its answer

The members fetch with different limits, acknowledge what they hold and what they do not hold, name wrong session
epochs, and end their sessions. No lock expires during the conversation.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from typing import Any, Final

from moldau.protocol.messages import share_acknowledge, share_fetch
from tests.support.coordinators import initialize_share_state
from tests.support.node import Client, batch

REQUESTS: Final = 200
MEMBERS: Final = ("m", "n")
BATCHES: Final = (3, 1, 5, 2, 8, 1, 4)
WAIT_MS: Final = 20


class Conversation:
    def __init__(self, client: Client, topic: str, topic_id: bytes, seed: int = 28) -> None:
        self.client = client
        self.topic = topic
        self.topic_id = topic_id
        self.draw = random.Random(seed)
        self.epochs = dict.fromkeys(MEMBERS, 0)
        self.held: dict[str, list[tuple[int, int]]] = {member: [] for member in MEMBERS}
        self.produced = 0

    async def produce(self, size: int) -> None:
        values = [str(self.produced + number) for number in range(size)]
        self.produced += size
        assert (await self.client.produce(self.topic, batch(*values))).error_code == 0

    async def line(self, number: int) -> str:
        """The next request and its answer."""
        if self.draw.random() < 0.15:
            await self.produce(self.draw.choice(BATCHES))
        member = self.draw.choice(MEMBERS)
        if self.draw.random() < 0.55:
            return f"{number:3} {member} {await self.fetch(member)}"
        return f"{number:3} {member} {await self.acknowledge(member)}"

    def session_epoch(self, member: str) -> int:
        if self.draw.random() < 0.06:
            return self.draw.choice((0, 7, -1))
        return self.epochs[member]

    def ranges(self, member: str) -> list[tuple[int, int, list[int]]]:
        """Ranges to acknowledge, in order: mostly what the member holds, sometimes anything."""
        found = []
        if self.held[member] and self.draw.random() < 0.9:
            first, last = self.held[member].pop(0)
            if last > first and self.draw.random() < 0.5:
                middle = self.draw.randint(first, last - 1)
                self.held[member].insert(0, (middle + 1, last))
                last = middle
            found.append((first, last))
        elif self.draw.random() < 0.5:
            first = self.draw.randint(0, 40)
            found.append((first, first + self.draw.randint(-1, 4)))
        kinds = (1, 1, 1, 2, 2, 3, 0, 4) if self.draw.random() < 0.9 else (5, -1)
        return [
            (
                first,
                last,
                [self.draw.choice(kinds)]
                if self.draw.random() < 0.6
                else [self.draw.choice(kinds) for _ in range(max(last - first, 0) + self.draw.choice((1, 1, 1, 1, 2)))],
            )
            for first, last in found
        ]

    async def fetch(self, member: str) -> str:
        epoch = self.session_epoch(member)
        ranges = self.ranges(member) if self.draw.random() < 0.4 else []
        # Whether records released here can be acquired by this request depends on how fast the release is written.
        ranges = [(first, last, [1 if kind == 2 else kind for kind in kinds]) for first, last, kinds in ranges]
        if epoch == 0 and self.draw.random() < 0.9:
            ranges = []
        data = share_fetch.FetchPartition(
            partition_index=0,
            acknowledgement_batches=[
                share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                for first, last, kinds in ranges
            ],
        )
        request = share_fetch.ShareFetchRequest(
            group_id=self.topic,
            member_id=member,
            share_session_epoch=epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_records=self.draw.choice((1, 2, 5, 500)),
            batch_size=self.draw.choice((2, 500)),
            share_acquire_mode=self.draw.choice((0, 0, 1)),
            topics=[share_fetch.FetchTopic(topic_id=self.topic_id, partitions=[data])],
        )
        answer = await self.client.ask(request, 2)
        await self.ended(member, epoch, answer.error_code)
        told = [f"fetch epoch={epoch} {shown(ranges)} error={answer.error_code}"]
        for each in partitions(answer):
            runs = [(run.first_offset, run.last_offset, run.delivery_count) for run in each.acquired_records]
            self.held[member].extend((first, last) for first, last, _ in runs)
            told.append(
                f"error={each.error_code} acknowledged={each.acknowledge_error_code} "
                f"{each.acknowledge_error_message!r} acquired={runs} bytes={len(each.records or b'')}"
            )
        return " | ".join(told)

    async def acknowledge(self, member: str) -> str:
        epoch, ranges = self.session_epoch(member), self.ranges(member)
        data = share_acknowledge.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
                for first, last, kinds in ranges
            ],
        )
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.topic,
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=any(4 in kinds for _, _, kinds in ranges) and self.draw.random() < 0.8,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[data])],
        )
        answer = await self.client.ask(request, 2)
        await self.ended(member, epoch, answer.error_code)
        told = [f"acknowledge epoch={epoch} {shown(ranges)} error={answer.error_code}"]
        told += [f"error={each.error_code} {each.error_message!r}" for each in partitions(answer)]
        return " | ".join(told)

    async def ended(self, member: str, epoch: int, error: int) -> None:
        """Keep the session's epoch as a client does."""
        if error == 0:
            self.epochs[member] = 0 if epoch == -1 else epoch + 1
            if epoch == -1:
                self.held[member].clear()
                # What the member held is released after the answer.
                await asyncio.sleep(0.1)
        elif error in (122, 123):  # the session is not found, or at another epoch
            self.epochs[member] = 0


def partitions(answer: Any) -> list[Any]:
    return [each for topic in answer.responses for each in topic.partitions]


def shown(ranges: Sequence[tuple[int, int, list[int]]]) -> str:
    return " ".join(f"{first}-{last}:{','.join(map(str, kinds))}" for first, last, kinds in ranges) or "-"


async def converse(client: Client, topic: str) -> list[str]:
    """The conversation about a new topic, of a group with the name of the topic."""
    topic_id = await client.create(topic, 1)
    await initialize_share_state(client.ask, topic, topic_id)
    conversation = Conversation(client, topic, topic_id)
    for size in BATCHES:
        await conversation.produce(size)
    # The first fetch makes the broker load the share partition.
    request = share_fetch.ShareFetchRequest(
        group_id=topic,
        member_id="first",
        share_session_epoch=0,
        max_wait_ms=2_000,
        min_bytes=1,
        max_records=0,
        batch_size=1,
        topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)])],
    )
    await client.ask(request, 2)
    return [await conversation.line(number) for number in range(REQUESTS)]


async def main(address: str, topic: str) -> None:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    client = Client(reader, writer, "conversation")
    print("\n".join(await converse(client, topic)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
