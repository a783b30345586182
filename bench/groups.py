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


LIMIT_S_MIN: Final = 600
LIMIT_TIMES: Final = 4


class Form(NamedTuple):
    """How much of everything is done."""

    is_quick: bool
    rounds: int
    warm_up_s: float
    case: str = ""
    """A part of the name of the cases to measure, in a group that has several; empty for all."""


class Group(NamedTuple):
    """`module` holds `measure(bench, form)`."""

    name: str
    module: str
    about: str
    expected_s: int
    """Of the full form, on a machine of two cores that does nothing else."""
    is_in_quick: bool = False
    is_long: bool = False
    """Minutes by the dozen: a run of these, `--long`, has a table of its own."""
    rounds: int = 3
    shares_brokers: bool = False
    """Whether it uses the warmed brokers of `bench.contenders`. Such groups stand together: between them these brokers
    run on, and before another group they end."""

    @property
    def limit_s(self) -> int:
        """A group that takes longer has failed."""
        return max(LIMIT_S_MIN, LIMIT_TIMES * self.expected_s)

    def form(self, *, is_quick: bool, rounds: int | None, case: str = "") -> Form:
        """`rounds` if somebody has asked for a number of them."""
        wanted = rounds or (min(ROUNDS_QUICK, self.rounds) if is_quick else self.rounds)
        return Form(is_quick, wanted, WARM_UP_QUICK_S if is_quick else WARM_UP_S, case)

    def measure(self, bench: Bench, form: Form) -> list[Figure]:
        measure: object = import_module(self.module).measure
        return cast("Callable[[Bench, Form], list[Figure]]", measure)(bench, form)


GROUPS: Final = (
    Group("start", "bench.start", "from exec to the first acknowledged produce", 35, is_in_quick=True, rounds=5),
    Group("memory", "bench.memory", "an idle broker", 45, is_in_quick=True, rounds=2),
    Group(
        "loads", "bench.throughput", "raw produce and fetch, closed loop", 260, is_in_quick=True, shares_brokers=True
    ),
    Group("sender", "bench.sender", "bulk fetches beside a C program that only sends", 15, shares_brokers=True),
    Group(
        "librdkafka",
        "bench.librdkafka",
        "produce and consume by librdkafka",
        100,
        is_in_quick=True,
        rounds=2,
        shares_brokers=True,
    ),
    Group("cluster", "bench.cluster", "three nodes, replication factor 3, under load", 220, rounds=2),
    Group("commands", "bench.commands", "the start of the command line", 20, rounds=5),
    Group("history", "bench.history", "the events of groups that coordinators remember", 15),
    Group("search", "bench.search", "a record found by a field in a whole topic", 70, rounds=2),
    Group("backup", "bench.backup", "a backup of a node's directories beside cp, and a second one", 15),
    Group("live", "bench.live", "a table and the segments behind it as one relation", 60, rounds=2),
    Group("cores", "bench.cores", "two processes of one machine beside one", 60),
    Group("transactions", "bench.transactions", "transactions of protocol 2, and read_committed", 260, rounds=2),
    Group("partitions", "bench.partitions", "start and memory with 1,000 partitions", 220, rounds=1),
    Group("tables", "bench.tables", "a topic as Arrow batches, without Spark", 180, rounds=2),
    Group("tls", "bench.tls", "loads under TLS, a thousand handshakes at once, 10,000 ACLs", 270, rounds=2),
    Group(
        "group_members", "bench.group_members", "members of consumer and classic groups, and heartbeats", 450, rounds=2
    ),
    Group(
        "spark",
        "bench.spark_reads",
        "Spark over files, a broker and objects; over the JVM connector; over Parquet",
        480,
        rounds=2,
    ),
    Group("lag", "bench.lag", "the lag of groups on /metrics", 170, rounds=1),
    Group(
        "erasure",
        "bench.erasure",
        "1,000 keys erased from three replicas, beside the cleaner; --case GIGABYTES",
        120,
        rounds=1,
    ),
    Group("compaction", "bench.compaction", "one log cleaned by both brokers: speed and memory", 220, rounds=2),
    Group("share_groups", "bench.share_groups", "members of a share group, and their latencies", 80, rounds=2),
    Group(
        "cluster_transactions",
        "bench.cluster_transactions",
        "transactions on three nodes, replication factor 3",
        220,
        rounds=2,
    ),
    Group("console", "bench.console", "memory, pages and the live tail of the console", 80, rounds=2),
    Group("kit", "bench.kit", "what a test waits for, and a node in memory", 125, rounds=2),
    Group("failover", "bench.failover", "three nodes, one of which is lost", 170, rounds=6),
    Group("lake", "bench.lake", "a topic followed as an Iceberg table, by one process", 150, rounds=1),
    Group("compaction_latency", "bench.compaction_latency", "produce and fetch while logs are cleaned", 120, rounds=2),
    Group(
        "hot",
        "bench.hot_path",
        "CPU of a small produce with all semantics",
        110,
        is_in_quick=True,
        rounds=2,
        shares_brokers=True,
    ),
    Group("open", "bench.open_loop", "raw produce at a given rate", 80, is_in_quick=True, shares_brokers=True),
    Group("tail", "bench.tail", "consumers that follow a producer", 60, is_in_quick=True, shares_brokers=True),
    Group("crowd", "bench.crowd", "memory under load with 20 consumers", 60, is_in_quick=True, shares_brokers=True),
    Group("tools", "bench.kafka_tools", "Kafka's own perf tools; needs Java", 110, rounds=2, shares_brokers=True),
    Group("e2e", "bench.end_to_end", "kafka-e2e-latency; needs Java", 60, rounds=2, shares_brokers=True),
    Group(
        "request_latency",
        "bench.request_latency",
        "the client's p99 beside that of the broker's metrics",
        20,
        is_in_quick=True,
    ),
    Group("group_failover", "bench.group_failover", "a group whose coordinator is killed", 60, rounds=4),
    Group("cold_read", "bench.cold_read", "reads from remote storage, and copies to it", 45, rounds=2),
    Group("restart", "bench.restart", "many partitions of transactions after kill -9", 130, rounds=2),
    Group("offset_loading", "bench.offset_loading", "a million offset records", 50, rounds=2),
    Group("group_loading", "bench.group_loading", "10,000 groups of two kinds", 80, rounds=2),
    Group("transaction_loading", "bench.transaction_loading", "100,000 transactional ids", 40, rounds=2),
    Group("idle_connections", "bench.idle_connections", "10,000 of them", 80, rounds=2),
    Group(
        "spark_planning",
        "bench.spark_planning",
        "a plan over 100,000 local segments and 1,000,000 tiered ones",
        50,
        rounds=2,
    ),
    Group(
        "imports", "bench.imports", "memory that libraries cost once they are imported", 10, is_in_quick=True, rounds=5
    ),
    Group(
        "long_lists", "bench.long_lists", "one request with a list of 100,000 elements", 1300, is_long=True, rounds=1
    ),
    Group("recovery", "bench.recovery", "ten active segments after kill -9", 900, is_long=True, rounds=1),
    Group(
        "controller_scale",
        "bench.controller_scale",
        "100,000 and 1,000,000 partitions in the controller",
        900,
        is_long=True,
    ),
    Group(
        "compacted_offsets",
        "bench.compacted_offsets",
        "five million commits by 1,000 groups",
        900,
        is_long=True,
        rounds=1,
    ),
)
"""In the order of a run and of the page: what a run that is cut short must have comes first."""
