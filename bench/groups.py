"""What can be measured, in parts that can be run alone: a module each, which returns its figures."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from bench.figures import Figure

if TYPE_CHECKING:
    from bench.subjects import Bench


ROUNDS_QUICK: Final = 2
WARM_UP_S: Final = 30.0
"""Less than that, and the compiler of a JVM has not done its work."""
WARM_UP_QUICK_S: Final = 10.0


class Form(NamedTuple):
    """How much of everything is done."""

    is_quick: bool
    rounds: int
    warm_up_s: float
    case: str = ""
    """A part of the name of the cases to measure, in a group that has several; empty for all."""


class Group(NamedTuple):
    """`module` holds `measure(bench, form)`; groups that use the warmed brokers of `Bench.contenders` stand last."""

    name: str
    module: str
    about: str
    is_in_quick: bool = True
    is_long: bool = False
    """Minutes by the dozen: a run of these, `--long`, has a table of its own."""
    rounds: int = 3

    def form(self, *, is_quick: bool, rounds: int | None, case: str = "") -> Form:
        """`rounds` if somebody has asked for a number of them."""
        wanted = rounds or (min(ROUNDS_QUICK, self.rounds) if is_quick else self.rounds)
        return Form(is_quick, wanted, WARM_UP_QUICK_S if is_quick else WARM_UP_S, case)

    def measure(self, bench: Bench, form: Form) -> list[Figure]:
        measure: object = import_module(self.module).measure
        return cast("Callable[[Bench, Form], list[Figure]]", measure)(bench, form)


GROUPS: Final = (
    Group("start", "bench.start", "from exec to the first acknowledged produce", rounds=5),
    Group("memory", "bench.memory", "an idle broker", rounds=2),
    Group("console", "bench.console", "memory, pages and the live tail of the console", is_in_quick=False),
    Group("commands", "bench.commands", "the start of the command line", is_in_quick=False, rounds=5),
    Group("history", "bench.history", "the events of groups that coordinators remember", is_in_quick=False),
    Group("search", "bench.search", "a record found by a field in a whole topic", is_in_quick=False),
    Group("lag", "bench.lag", "the lag of groups on /metrics", is_in_quick=False, rounds=1),
    Group("imports", "bench.imports", "memory that libraries cost once they are imported", rounds=5),
    Group("kit", "bench.kit", "what a test waits for, and a node in memory", is_in_quick=False),
    Group("partitions", "bench.partitions", "start and memory with 1,000 partitions", is_in_quick=False, rounds=2),
    Group("recovery", "bench.recovery", "ten active segments after kill -9", is_in_quick=False, is_long=True, rounds=1),
    Group("restart", "bench.restart", "many partitions of transactions after kill -9", is_in_quick=False, rounds=2),
    Group(
        "controller_scale",
        "bench.controller_scale",
        "100,000 and 1,000,000 partitions in the controller",
        is_in_quick=False,
        is_long=True,
    ),
    Group("offset_loading", "bench.offset_loading", "a million offset records", is_in_quick=False, rounds=2),
    Group("group_loading", "bench.group_loading", "10,000 groups of two kinds", is_in_quick=False, rounds=2),
    Group("transaction_loading", "bench.transaction_loading", "100,000 transactional ids", is_in_quick=False, rounds=2),
    Group("idle_connections", "bench.idle_connections", "10,000 of them", is_in_quick=False, rounds=2),
    Group("tls", "bench.tls", "loads under TLS, a thousand handshakes at once, 10,000 ACLs", is_in_quick=False),
    Group("transactions", "bench.transactions", "transactions of protocol 2, and read_committed", is_in_quick=False),
    Group("compaction", "bench.compaction", "one log cleaned by both brokers: speed and memory", is_in_quick=False),
    Group(
        "compaction_latency", "bench.compaction_latency", "produce and fetch while logs are cleaned", is_in_quick=False
    ),
    Group("cold_read", "bench.cold_read", "reads from remote storage, and copies to it", is_in_quick=False),
    Group(
        "compacted_offsets",
        "bench.compacted_offsets",
        "five million commits by 1,000 groups",
        is_in_quick=False,
        is_long=True,
        rounds=1,
    ),
    Group("tables", "bench.tables", "a topic as Arrow batches, without Spark", is_in_quick=False),
    Group("lake", "bench.lake", "a topic followed as an Iceberg table, by one process", is_in_quick=False, rounds=2),
    Group("backup", "bench.backup", "a backup of a node's directories beside cp, and a second one", is_in_quick=False),
    Group(
        "erasure",
        "bench.erasure",
        "1,000 keys erased from three replicas, beside the cleaner; --case GIGABYTES",
        is_in_quick=False,
        rounds=1,
    ),
    Group("live", "bench.live", "a table and the segments behind it as one relation", is_in_quick=False),
    Group(
        "spark",
        "bench.spark_reads",
        "Spark over files, a broker and objects; over the JVM connector; over Parquet",
        is_in_quick=False,
        rounds=2,
    ),
    Group(
        "spark_planning",
        "bench.spark_planning",
        "a plan over 100,000 local segments and 1,000,000 tiered ones",
        is_in_quick=False,
    ),
    Group(
        "long_lists",
        "bench.long_lists",
        "one request with a list of 100,000 elements",
        is_in_quick=False,
    ),
    Group(
        "group_members",
        "bench.group_members",
        "members of consumer and classic groups, and heartbeats",
        is_in_quick=False,
    ),
    Group("share_groups", "bench.share_groups", "members of a share group, and their latencies", is_in_quick=False),
    Group("cores", "bench.cores", "two processes of one machine beside one", is_in_quick=False),
    Group("hot", "bench.hot_path", "CPU of a small produce with all semantics"),
    Group("loads", "bench.throughput", "raw produce and fetch, closed loop"),
    Group("open", "bench.open_loop", "raw produce at a given rate"),
    Group("request_latency", "bench.request_latency", "the client's p99 beside that of the broker's metrics"),
    Group("tail", "bench.tail", "consumers that follow a producer"),
    Group("sender", "bench.sender", "bulk fetches beside a C program that only sends", is_in_quick=False),
    Group("librdkafka", "bench.librdkafka", "produce and consume by librdkafka"),
    Group("tools", "bench.kafka_tools", "Kafka's own perf tools; needs Java", is_in_quick=False, rounds=2),
    Group("e2e", "bench.end_to_end", "kafka-e2e-latency; needs Java", is_in_quick=False),
    Group("cluster", "bench.cluster", "three nodes, replication factor 3, under load", is_in_quick=False, rounds=2),
    Group(
        "cluster_transactions",
        "bench.cluster_transactions",
        "transactions on three nodes, replication factor 3",
        is_in_quick=False,
        rounds=2,
    ),
    Group("failover", "bench.failover", "three nodes, one of which is lost", is_in_quick=False, rounds=20),
    Group("group_failover", "bench.group_failover", "a group whose coordinator is killed", is_in_quick=False, rounds=5),
    Group("crowd", "bench.crowd", "memory under load with 20 consumers"),
)
