"""The cost of transactions of ten producers for a broker: `python bench/micro/transaction_path.py`.

The node runs on the event loop of this process, over real sockets and files; the producers are another process. Each
transaction has 100 records in three partitions. With `--offsets` it also consumes 100 records and commits offsets of a
group. Prints the CPU time (microseconds) of a transaction as the median and the minimum of some rounds. `--profile`
prints a profile instead.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.client import Client, connect_with_retries
from bench.conversations import run_conversations
from bench.frames import batch_of, fetch_frame, produce_frame
from bench.micro.local_node import formatted_node, measure_rounds
from bench.transactional_client import (
    GROUP_KEY,
    ConsumedSource,
    TransactionalBatch,
    TransactionalProducer,
    TransactionWork,
    await_coordinator,
)
from bench.transactions import FETCH_SIZE, RECORD_SIZES
from moldau.broker.node.node import Node
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.conformance.brokers import Ports

PRODUCERS = 10
ROUNDS = 7
ROUND_TRANSACTIONS = 2_000
TOPIC = "micro"
SOURCE = "micro-source"
OFFSETS = "--offsets"
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def produce(port: int) -> None:
    """Run the process of the producers: one round for each line of its input."""
    client = connect_with_retries(port)
    wanted = CreatableTopic(name=TOPIC, num_partitions=len(RECORD_SIZES), replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse, 5)
    for partition in range(len(RECORD_SIZES)):
        client.produce_with_retries(TOPIC, partition)
    batches = [TransactionalBatch(sizes, time.time_ns() // 1_000_000) for sizes in RECORD_SIZES]
    source = source_of(client, port) if OFFSETS in sys.argv else None
    work = TransactionWork(TOPIC, [port] * len(RECORD_SIZES), batches, source)
    producers = [TransactionalProducer(client, f"micro-{each}", work) for each in range(PRODUCERS)]
    for line in sys.stdin:
        run_conversations([each.run_transactions(int(line) // PRODUCERS) for each in producers])
        print("done", flush=True)


def source_of(client: Client, port: int) -> ConsumedSource:
    """Make a topic with the records that one transaction consumes, and a group of its own."""
    wanted = CreatableTopic(name=SOURCE, num_partitions=1, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), CreateTopicsResponse, 5)
    client.produce_with_retries(SOURCE, 0)
    client.exchange(produce_frame(SOURCE, batch_of([100] * 100, time.time_ns() // 1_000_000)))
    return ConsumedSource(
        port, fetch_frame(SOURCE, 1, FETCH_SIZE), SOURCE, await_coordinator(client, SOURCE, GROUP_KEY)
    )


async def start_node(home: str, port: int) -> Node:
    controller = f"127.0.0.1:{port + 1}"
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}"
    node = formatted_node(
        {**PROPERTIES, "controller.quorum.voters": f"1@{controller}", "listeners": listeners, "log.dirs": home}
    )
    await node.start()
    return node


async def measure(home: str) -> None:
    port = Ports(25_000, 26_000).pair()
    node = await start_node(home, port)
    await measure_rounds(
        (__file__, str(port), *sys.argv[1:]), "a transaction", requests=ROUND_TRANSACTIONS, rounds=ROUNDS
    )
    await node.stop()


def main() -> None:
    if sys.argv[1:2] and sys.argv[1].isdigit():
        produce(int(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as home:
        uvloop.run(measure(home))


if __name__ == "__main__":
    main()
