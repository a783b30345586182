"""A conversation with a share coordinator, drawn from a seed: the same requests to Apache Kafka and to this broker.

    python -m tests.support.share_coordinator_conversation HOST:PORT     prints what a broker answers to each request

The topic has two partitions. Epochs run ahead and fall behind, keys are used before they are initialized and after they
are deleted, partitions and topics do not exist.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from typing import Any, Final

from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.protocol.messages import delete_share_group_state as delete
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages import read_share_group_state as read
from moldau.protocol.messages import read_share_group_state_summary as summary
from moldau.protocol.messages import write_share_group_state as write
from tests.support.coordinators import SHARE, until_coordinated
from tests.support.node import Client

REQUESTS: Final = 200
UPDATES_PER_SNAPSHOT: Final = 2
GROUPS: Final = ("g", "h:i")
UNKNOWN_TOPIC: Final = bytes(range(16))


def requests(topic_id: bytes, seed: int = 28) -> Iterator[object]:
    """The requests of the conversation; each is about one key, the writes about several batches."""
    draw = random.Random(seed)
    for _ in range(REQUESTS):
        group = draw.choice(GROUPS)
        topic = topic_id if draw.random() < 0.92 else UNKNOWN_TOPIC
        partition = draw.choice((0, 0, 0, 0, 1, 1, 2, -1))
        state_epoch, leader_epoch = draw.choice((-1, 0, 1, 1, 2, 3)), draw.choice((-1, 0, 1, 1, 2, 3))
        match draw.choice("iwwwwwrrsd"):
            case "i":
                one = initialize.PartitionData(
                    partition=partition, state_epoch=state_epoch, start_offset=draw.choice((-1, 0, 5))
                )
                begun = initialize.InitializeStateData(topic_id=topic, partitions=[one])
                yield initialize.InitializeShareGroupStateRequest(group_id=group, topics=[begun])
            case "w":
                changed = write.PartitionData(
                    partition=partition,
                    state_epoch=state_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=draw.choice((-1, -1, draw.randint(0, 9))),
                    delivery_complete_count=draw.randint(-1, 5),
                    state_batches=[drawn_batch(draw) for _ in range(draw.randint(0, 3))],
                )
                written = write.WriteStateData(topic_id=topic, partitions=[changed])
                yield write.WriteShareGroupStateRequest(group_id=group, topics=[written])
            case "r":
                wanted = read.PartitionData(partition=partition, leader_epoch=leader_epoch)
                yield read.ReadShareGroupStateRequest(
                    group_id=group, topics=[read.ReadStateData(topic_id=topic, partitions=[wanted])]
                )
            case "s":
                summed = summary.PartitionData(partition=partition, leader_epoch=leader_epoch)
                yield summary.ReadShareGroupStateSummaryRequest(
                    group_id=group, topics=[summary.ReadStateSummaryData(topic_id=topic, partitions=[summed])]
                )
            case _:
                yield delete.DeleteShareGroupStateRequest(
                    group_id=group,
                    topics=[
                        delete.DeleteStateData(topic_id=topic, partitions=[delete.PartitionData(partition=partition)])
                    ],
                )


def drawn_batch(draw: random.Random) -> write.StateBatch:
    first = draw.randint(0, 20)
    return write.StateBatch(
        first_offset=first,
        last_offset=first + draw.randint(0, 6),
        delivery_state=draw.choice((0, 2, 4)),
        delivery_count=draw.randint(1, 3),
    )


VERSIONS: Final = {write.WriteShareGroupStateRequest: 1, summary.ReadShareGroupStateSummaryRequest: 1}


def line_of(number: int, request: object, answer: Any) -> str:
    """What a broker answered, without what differs from broker to broker."""
    name = type(request).__name__.removesuffix("ShareGroupStateRequest").removesuffix("Request")
    fields = []
    (topic,) = answer.results
    (found,) = topic.partitions
    for field in ("partition", "error_code", "error_message", "state_epoch", "leader_epoch", "start_offset"):
        if hasattr(found, field):
            fields.append(f"{field}={getattr(found, field)!r}")
    if hasattr(found, "delivery_complete_count"):
        fields.append(f"delivery_complete_count={found.delivery_complete_count}")
    for batch in getattr(found, "state_batches", ()):
        fields.append(f"{batch.first_offset}-{batch.last_offset}:{batch.delivery_state}:{batch.delivery_count}")
    return f"{number:3} {name} " + " ".join(fields)


async def converse(client: Client, topic_id: bytes) -> list[str]:
    """The answers of a broker that leads the whole share state topic."""
    from moldau.broker.coordinators.share_coordinator import coordinator_key

    for group in GROUPS:
        for partition in (0, 1):
            key = coordinator_key(ShareKey(group, topic_id, partition))
            await until_coordinated(client.ask, key, SHARE)
    await asyncio.sleep(2)
    lines = []
    for number, request in enumerate(requests(topic_id)):
        answer = await client.ask(request, VERSIONS.get(type(request), 0))
        lines.append(line_of(number, request, answer))
    return lines


async def main(address: str) -> None:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    client = Client(reader, writer, "conversation")
    topic_id = await client.create("t", 2)
    print("\n".join(await converse(client, topic_id)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
