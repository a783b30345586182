"""Transactions of protocol 2 on three nodes, replication factor 3, beside three of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from bench import cluster
from bench.client import Client, connect_when_possible
from bench.figures import Figure
from bench.groups import Form
from bench.processes import CpuTime
from bench.subjects import Bench
from bench.transactions import figures_of_cases
from bench.trio import Trio

SHARE: Final = 8
"""Apache Kafka commits a few dozen transactions of one producer a second, so a whole case would take minutes."""


class ThreeNodes:
    """A cluster as a subject of the measurements of transactions."""

    def __init__(self, trio: Trio) -> None:
        self.name = trio.name
        self._trio = trio

    def client(self) -> Client:
        return self._trio.client()

    def create(self, topic: str, partitions: int) -> Sequence[int]:
        self._trio.create_topic(topic, partitions)
        ports = [self._trio.servers[each.leader_id].port for each in self._trio.partitions(topic)]
        for partition, port in enumerate(ports):
            client = connect_when_possible(port)
            client.produce_when_possible(topic, partition)
            client.close()
        return ports

    def delete(self, topic: str) -> None:
        self._trio.delete_topic(topic)

    def spend(self, work: Callable[[], None]) -> CpuTime:
        return self._trio.spend(work)[1].cpu


def measure(bench: Bench, form: Form) -> list[Figure]:
    with ExitStack() as stack:
        trios = [stack.enter_context(Trio(bench, name)) for name in bench.names]
        for trio in trios:
            cluster.warm_up(trio, form.warm_up_s)
        return figures_of_cases([ThreeNodes(trio) for trio in trios], form, "three nodes, ", SHARE)
