"""Transactions of protocol 2 on three nodes, replication factor 3, beside three of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from bench import cluster
from bench.client import Client, connect_with_retries
from bench.figures import Figure
from bench.groups import RunForm
from bench.processes import CpuTime
from bench.subjects import Bench
from bench.transactions import figures_of_cases
from bench.trio import ThreeNodeCluster

SHARE: Final = 8
"""Each case runs with this fraction of its transactions: Apache Kafka commits only a few dozen transactions of one
producer a second.
"""


class ThreeNodes:
    """A cluster of three nodes as the subject of the transaction measurements."""

    def __init__(self, trio: ThreeNodeCluster) -> None:
        self.name = trio.name
        self._trio = trio

    def client(self) -> Client:
        return self._trio.client()

    def create_topic(self, topic: str, partitions: int) -> Sequence[int]:
        self._trio.create_topic(topic, partitions)
        ports = [self._trio.servers[each.leader_id].port for each in self._trio.partitions(topic)]
        for partition, port in enumerate(ports):
            client = connect_with_retries(port)
            client.produce_with_retries(topic, partition)
            client.close()
        return ports

    def delete_topic(self, topic: str) -> None:
        self._trio.delete_topic(topic)

    def measure_usage(self, work: Callable[[], None]) -> CpuTime:
        return self._trio.measure_usage(work)[1].cpu


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    with ExitStack() as stack:
        trios = [stack.enter_context(ThreeNodeCluster(bench, name)) for name in bench.names]
        for trio in trios:
            cluster.warm_up(trio, form.warm_up_s)
        return figures_of_cases([ThreeNodes(trio) for trio in trios], form, "three nodes, ", SHARE)
