"""The groups of measurements, which can be run alone. Each is a module that returns its figures."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from bench.figures import Figure

if TYPE_CHECKING:
    from bench.subjects import Bench


ROUNDS_QUICK: Final = 2
WARM_UP_S: Final = 30.0
"""The warm-up. In less time a JVM has not compiled its hot code."""
WARM_UP_QUICK_S: Final = 10.0


LIMIT_S_MIN: Final = 600
LIMIT_TIMES: Final = 4


class RunForm(NamedTuple):
    """How long and how often each group measures."""

    is_quick: bool
    rounds: int
    warm_up_s: float
    case: str = ""
    """A part of the name of the cases to measure, if a group has several; empty for all."""


class MeasurementGroup(NamedTuple):
    """A group of measurements. Its `module` has the function `measure(bench, form)`."""

    name: str
    module: str
    about: str
    expected_s: int
    """The duration in the full form, on an otherwise idle machine of two cores."""
    is_in_quick: bool = False
    is_long: bool = False
    """Whether the group takes dozens of minutes. `--long` runs these groups, which have a table of their own."""
    rounds: int = 3
    shares_brokers: bool = False
    """Whether the group uses the warmed brokers of `bench.contenders`. Such groups follow one another: the brokers run
    on between them, and end before any other group.
    """

    @property
    def limit_s(self) -> int:
        """The time limit after which the group has failed."""
        return max(LIMIT_S_MIN, LIMIT_TIMES * self.expected_s)

    def form(self, *, is_quick: bool, rounds: int | None, case: str = "") -> RunForm:
        """The form of this group's run. `rounds` is the number of rounds that the user asked for, or None."""
        wanted = rounds or (min(ROUNDS_QUICK, self.rounds) if is_quick else self.rounds)
        return RunForm(is_quick, wanted, WARM_UP_QUICK_S if is_quick else WARM_UP_S, case)

    def measure(self, bench: Bench, form: RunForm) -> list[Figure]:
        measure: object = import_module(self.module).measure
        return cast("Callable[[Bench, RunForm], list[Figure]]", measure)(bench, form)


GROUPS: Final = (
    MeasurementGroup(
        "start", "bench.start", "from exec to the first acknowledged produce", 35, is_in_quick=True, rounds=5
    ),
    MeasurementGroup("memory", "bench.memory", "an idle broker", 45, is_in_quick=True, rounds=2),
    MeasurementGroup(
        "loads", "bench.throughput", "raw produce and fetch, closed loop", 260, is_in_quick=True, shares_brokers=True
    ),
    MeasurementGroup(
        "sender", "bench.sender", "bulk fetches beside a C program that only sends", 15, shares_brokers=True
    ),
    MeasurementGroup(
        "librdkafka",
        "bench.librdkafka",
        "produce and consume by librdkafka",
        100,
        is_in_quick=True,
        rounds=2,
        shares_brokers=True,
    ),
    MeasurementGroup("cluster", "bench.cluster", "three nodes, replication factor 3, under load", 220, rounds=2),
    MeasurementGroup("commands", "bench.commands", "the start of the command line", 20, rounds=5),
    MeasurementGroup("history", "bench.history", "the events of groups that coordinators remember", 15),
    MeasurementGroup("search", "bench.search", "a record found by a field in a whole topic", 70, rounds=2),
    MeasurementGroup("backup", "bench.backup", "a backup of a node's directories beside cp, and a second one", 15),
    MeasurementGroup("live", "bench.live", "a table and the segments behind it as one relation", 60, rounds=2),
    MeasurementGroup("cores", "bench.cores", "two processes of one machine beside one", 60),
    MeasurementGroup(
        "transactions", "bench.transactions", "transactions of protocol 2, and read_committed", 260, rounds=2
    ),
    MeasurementGroup("partitions", "bench.partitions", "start and memory with 1,000 partitions", 220, rounds=1),
    MeasurementGroup("tables", "bench.tables", "a topic as Arrow batches, without Spark", 180, rounds=2),
    MeasurementGroup("tls", "bench.tls", "loads under TLS, a thousand handshakes at once, 10,000 ACLs", 270, rounds=2),
    MeasurementGroup(
        "group_members", "bench.group_members", "members of consumer and classic groups, and heartbeats", 450, rounds=2
    ),
    MeasurementGroup(
        "spark",
        "bench.spark_reads",
        "Spark over files, a broker and objects; over the JVM connector; over Parquet",
        480,
        rounds=2,
    ),
    MeasurementGroup("lag", "bench.lag", "the lag of groups on /metrics", 170, rounds=1),
    MeasurementGroup(
        "erasure",
        "bench.erasure",
        "1,000 keys erased from three replicas, beside the cleaner; --case GIGABYTES",
        120,
        rounds=1,
    ),
    MeasurementGroup(
        "compaction", "bench.compaction", "one log cleaned by both brokers: speed and memory", 220, rounds=2
    ),
    MeasurementGroup(
        "share_groups", "bench.share_groups", "members of a share group, and their latencies", 80, rounds=2
    ),
    MeasurementGroup(
        "cluster_transactions",
        "bench.cluster_transactions",
        "transactions on three nodes, replication factor 3",
        220,
        rounds=2,
    ),
    MeasurementGroup("console", "bench.console", "memory, pages and the live tail of the console", 80, rounds=2),
    MeasurementGroup("kit", "bench.kit", "what a test waits for, and a node in memory", 125, rounds=2),
    MeasurementGroup("failover", "bench.failover", "three nodes, one of which is lost", 170, rounds=6),
    MeasurementGroup("lake", "bench.lake", "a topic followed as an Iceberg table, by one process", 150, rounds=1),
    MeasurementGroup(
        "compaction_latency", "bench.compaction_latency", "produce and fetch while logs are cleaned", 120, rounds=2
    ),
    MeasurementGroup(
        "hot",
        "bench.hot_path",
        "CPU of a small produce with all semantics",
        110,
        is_in_quick=True,
        rounds=2,
        shares_brokers=True,
    ),
    MeasurementGroup(
        "open", "bench.open_loop", "raw produce at a given rate", 80, is_in_quick=True, shares_brokers=True
    ),
    MeasurementGroup(
        "tail", "bench.tail", "consumers that follow a producer", 60, is_in_quick=True, shares_brokers=True
    ),
    MeasurementGroup(
        "crowd", "bench.crowd", "memory under load with 20 consumers", 60, is_in_quick=True, shares_brokers=True
    ),
    MeasurementGroup(
        "tools", "bench.kafka_tools", "Kafka's own perf tools; needs Java", 110, rounds=2, shares_brokers=True
    ),
    MeasurementGroup("e2e", "bench.end_to_end", "kafka-e2e-latency; needs Java", 60, rounds=2, shares_brokers=True),
    MeasurementGroup(
        "request_latency",
        "bench.request_latency",
        "the client's p99 beside that of the broker's metrics",
        20,
        is_in_quick=True,
    ),
    MeasurementGroup("group_failover", "bench.group_failover", "a group whose coordinator is killed", 60, rounds=4),
    MeasurementGroup("cold_read", "bench.cold_read", "reads from remote storage, and copies to it", 45, rounds=2),
    MeasurementGroup("restart", "bench.restart", "many partitions of transactions after kill -9", 130, rounds=2),
    MeasurementGroup("offset_loading", "bench.offset_loading", "a million offset records", 50, rounds=2),
    MeasurementGroup("group_loading", "bench.group_loading", "10,000 groups of two kinds", 80, rounds=2),
    MeasurementGroup("transaction_loading", "bench.transaction_loading", "100,000 transactional ids", 40, rounds=2),
    MeasurementGroup("idle_connections", "bench.idle_connections", "10,000 of them", 80, rounds=2),
    MeasurementGroup(
        "spark_planning",
        "bench.spark_planning",
        "a plan over 100,000 local segments and 1,000,000 tiered ones",
        50,
        rounds=2,
    ),
    MeasurementGroup(
        "imports", "bench.imports", "memory that libraries cost once they are imported", 10, is_in_quick=True, rounds=5
    ),
    MeasurementGroup(
        "long_lists", "bench.long_lists", "one request with a list of 100,000 elements", 1300, is_long=True, rounds=1
    ),
    MeasurementGroup("recovery", "bench.recovery", "ten active segments after kill -9", 900, is_long=True, rounds=1),
    MeasurementGroup(
        "controller_scale",
        "bench.controller_scale",
        "100,000 and 1,000,000 partitions in the controller",
        900,
        is_long=True,
    ),
    MeasurementGroup(
        "compacted_offsets",
        "bench.compacted_offsets",
        "five million commits by 1,000 groups",
        900,
        is_long=True,
        rounds=1,
    ),
)
"""The groups in the order of a run and of the page. The most important ones come first, in case a run is cut short."""
