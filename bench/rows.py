"""The rows of a release: for each figure its name, its bar and its target, in one list.

A group of measurements returns figures. A figure that has the name of a row here is compared with its bar and target.
To add a row: a line in `ROWS`; to add a module: a line in `bench.groups`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from bench.figures import Figure


class Verdict(Enum):
    """How a figure compares with the bar and the target of its row."""

    NOT_COMPARED = "not compared"
    """The row is a ratio to Apache Kafka, and the run did not measure Apache Kafka."""
    MISSED = "**missed**"
    HOLDS = "holds"
    TARGET_REACHED = "target reached"
    TARGET_MISSED = "target missed"
    """The target of a row without a bar is missed."""


class Row(NamedTuple):
    """A figure's bar, which must hold, and its target, which is wanted. Both are in the figure's unit, or as a multiple
    of Apache Kafka's figure.
    """

    name: str
    group: str
    """The group of `bench.groups` that measures the row."""
    bar: float | None
    target: float | None = None
    less_is_better: bool = False
    is_ratio: bool = True

    def value(self, figure: Figure) -> float | None:
        """The value that is compared with bar and target."""
        return figure.ratio if self.is_ratio else figure.ours

    def is_within(self, value: float, limit: float) -> bool:
        return value <= limit if self.less_is_better else value >= limit

    def verdict(self, figure: Figure) -> Verdict:
        value = self.value(figure)
        if value is None:
            return Verdict.NOT_COMPARED
        if self.target is not None and self.is_within(value, self.target):
            return Verdict.TARGET_REACHED
        if self.bar is None:
            return Verdict.TARGET_MISSED
        return Verdict.HOLDS if self.is_within(value, self.bar) else Verdict.MISSED

    def limit(self, limit: float | None) -> str:
        """Format a bar or a target for the page."""
        if limit is None:
            return ""
        return f"{'≤' if self.less_is_better else '≥'} {limit:g}{'×' if self.is_ratio else ''}"


def _at_least(name: str, group: str, bar: float | None, target: float | None = None) -> Row:
    """A row whose ratio to Apache Kafka must be at least the bar."""
    return Row(name, group, bar, target)


def _at_most(name: str, group: str, bar: float | None, target: float | None = None) -> Row:
    """A row whose ratio to Apache Kafka must be at most the bar."""
    return Row(name, group, bar, target, less_is_better=True)


def _percent(name: str, group: str, bar: float) -> Row:
    """A row whose figure must be at least this percentage."""
    return Row(name, group, bar, is_ratio=False)


def _within(name: str, group: str, bar: float, target: float | None = None) -> Row:
    """A row whose figure, in its own unit, must be at most the bar."""
    return Row(name, group, bar, target, less_is_better=True, is_ratio=False)


def _not_below(name: str, group: str, bar: float) -> Row:
    """A row whose figure, in its own unit, must be at least the bar."""
    return Row(name, group, bar, is_ratio=False)


LONG_LIST: Final = "long list"
"""The prefix of the figures of single lists, which docs/long-lists.md shows. docs/performance.md has one row for all
lists.
"""
LONG_LIST_USERS: Final = ("without rights", "super user")


BULK_FETCH: Final = "fetch 1 MiB of 64 KiB batches, 4 connections x 5 in flight"


def long_lists_row(user: str) -> str:
    return f"requests with a list of 100,000 elements, {user}: time"


HELP: Final = "moldau COMMAND --help, of the slowest command: from exec to the end"
TOPIC_LIST: Final = "moldau topic list: from exec to the end"
HISTORY: Final = "history of groups: memory of 1,000,000 events of 10,000 groups"
SEARCH_STOP: Final = "search for a record by a JSON field: until it has stopped"


def search_of(topic: str) -> str:
    return f"search for a record by a JSON field, {topic}: bytes of the log a second of CPU"


LAG_PAGE: Final = "lag of 500 groups on 1,000 topics: the page"


def lag_row(case: str) -> str:
    return f"lag of 500 groups on 1,000 topics, {case}: of a core, at a scrape each 15 s"


ROWS: Final = (
    _at_most("start: exec to first acknowledged produce, one topic", "start", 0.1),
    _at_most("start: exec to first acknowledged produce, new directory and an auto-created topic", "start", 0.1),
    _within("memory: resident, idle, one topic", "memory", 40),
    _within(HELP, "commands", 0.35),
    _within(TOPIC_LIST, "commands", 0.6),
    _within(HISTORY, "history", 20),
    _not_below(search_of("plain"), "search", 300),
    _within(SEARCH_STOP, "search", 0.5),
    _within(lag_row("at rest"), "lag", 1),
    _within(lag_row("all topics grow"), "lag", 1),
    _within(lag_row("all groups commit and all topics grow"), "lag", 1),
    _within(LAG_PAGE, "lag", 2),
    _within("console: resident memory, every page seen, above that", "console", 8),
    _within("console: longest server time of a page at full size", "console", 200),
    _within("console: live tail read by a client: produce p99, times that without", "console", 1.3),
    _within("console: live tail open in a browser: produce p99, times that without", "console", 1.3),
    _within("kit: first broker ready, the import of the kit included", "kit", 0.3),
    _within("kit: three nodes ready", "kit", 1.2),
    _within("kit: 200 tests with a topic each: time of one", "kit", 5),
    _within("kit: resident, idle, in memory, one topic", "kit", 40),
    _at_least("kit: produce 200 B, 4 connections x 5 in flight, in memory, against a disk: rate", "kit", 1.0),
    _at_least("--cores 2: produce 200 B, acks=all, 8 connections x 5 in flight: rate", "cores", 1.5, 1.8),
    _at_least("--cores 2: fetch 1 MiB, 8 connections: rate", "cores", 1.3),
    _at_least("produce 200 B, 4 connections x 5 in flight: rate", "loads", 1.5, 2.5),
    _at_most("produce 200 B, 4 connections x 5 in flight: p99", "loads", 0.8, 0.5),
    _at_least("produce 200 B, one in flight: rate", "loads", 1.15, 1.5),
    _at_most("produce 200 B, one in flight: p99", "loads", None, 0.5),
    _at_least("produce 16 KiB, acks=all, 4 x 5: rate", "loads", 1.5, 2.5),
    _at_least("produce 256 KiB, 4 x 5: rate", "loads", 1.0, 1.5),
    _at_least("fetch 1 MiB from page cache, 4 connections: rate", "loads", 1.0, 1.15),
    _at_least("fetch 1 MiB from page cache, 1 connection: rate", "loads", 1.1, 1.5),
    _at_least("fetch 1 MiB of 64 KiB batches, 4 connections x 5 in flight: rate", "loads", 1.0),
    _at_least(f"{BULK_FETCH}, against a program that only sends: rate", "sender", 0.85),
    _at_most(f"{BULK_FETCH}, against a program that only sends: CPU", "sender", 1.25),
    _at_most("produce 200 B, 4 connections x 5 in flight: user + system CPU", "loads", 0.6, 0.3),
    _at_most("produce 16 KiB, acks=all, 4 x 5: user + system CPU", "loads", 0.6, 0.35),
    _at_most("fetch 1 MiB from page cache, 4 connections: user + system CPU", "loads", 0.85, 0.75),
    _within("hot path: idempotent, one record of 100 B, 4 connections x 5 in flight: user CPU", "hot", 25, 12),
    _at_least("librdkafka produce 100 B: rate", "librdkafka", 1.0, 1.4),
    _at_least("librdkafka produce 1 KiB, acks=all: rate", "librdkafka", 1.4, 2.4),
    _at_least("librdkafka produce 1 KiB, lz4: rate", "librdkafka", 1.0, 1.2),
    _at_least("librdkafka produce 1 KiB, idempotent: rate", "librdkafka", 1.4, 2.4),
    _at_least("librdkafka consume 1 KiB: rate", "librdkafka", 1.0, 1.3),
    _at_least("kafka-producer-perf-test 100 B: rate", "tools", 1.0, 1.2),
    _at_least("kafka-producer-perf-test 1 KiB: rate", "tools", 1.0, 1.2),
    _at_least("kafka-consumer-perf-test 100 B: rate", "tools", 1.0, 1.2),
    _at_least("kafka-consumer-perf-test 1 KiB: rate", "tools", 1.0, 1.2),
    _at_most("open loop at half of Apache Kafka's peak, 200 B, 4 connections: p99", "open", 0.7, 0.5),
    _at_most("open loop at half of Apache Kafka's peak, 200 B, 4 connections: p99.9", "open", None, 1.0),
    _within("p99 of produces that wait for the disk: the broker's, off the client's", "request_latency", 10),
    _at_most("kafka-e2e-latency: average", "e2e", 0.8, 0.6),
    _at_most("kafka-e2e-latency: p99", "e2e", 0.8, 0.6),
    _within("memory: anonymous, 1,000 partitions just written", "partitions", 100),
    _within("20,000 partitions at rest after a clean stop and a start: CPU", "partitions", 1),
    _within("memory: anonymous, 1,000 partitions, idle after a start", "partitions", 100),
    _at_least("three nodes, produce 200 B, 6 partitions x 5 in flight: rate", "cluster", 3.0, 5.0),
    _at_most("three nodes, produce 200 B, 6 partitions x 5 in flight: p99", "cluster", 0.6),
    _at_least("three nodes, produce 16 KiB, 6 x 5: rate", "cluster", 3.0, 5.0),
    _at_least("three nodes, produce 256 KiB, 6 x 5: rate", "cluster", 1.1, 1.5),
    _at_least("three nodes, produce 200 B, one in flight: rate", "cluster", 1.1, 1.5),
    _at_most("three nodes, produce 200 B, 6 partitions x 5 in flight: user + system CPU of the three", "cluster", 0.3),
    _at_most("three nodes, produce 16 KiB, 6 x 5: user + system CPU of the three", "cluster", 0.3),
    _within("three nodes under load: resident memory of the three", "cluster", 300),
    _within("leader killed, 1,000 partitions: longest time without an acknowledgement, p99", "failover", 3000),
    _within(
        "leader stopped by SIGSTOP, 1,000 partitions: longest time without an acknowledgement, p99", "failover", 3000
    ),
    _within("brokers fenced by standing still for 2 s", "failover", 0),
    _within("controller killed: until another decides, p99", "failover", 2000),
    _within("controlled shutdown, 1,000 partitions: longest time without an acknowledgement", "failover", 200),
    _within("coordinator killed: until its group goes on, p99", "group_failover", 5000),
    _within("coordinator killed: committed offsets lost", "group_failover", 0),
    _within("RssAnon under load with 20 consumers fetching 50 MB each, at most", "crowd", 150),
    *(
        row
        for size in ("100 B", "1 KiB")
        for codec in ("none", "lz4", "zstd")
        for row in (
            _at_least(f"spark: {size} values, {codec}: full scan, against the JVM connector", "spark", 3.0, 5.0),
            _at_least(f"spark: {size} values, {codec}: all columns, against ready batches", "spark", 0.85),
            _at_least(f"spark: {size} values, {codec}: all columns, against Parquet", "spark", 0.9),
            _at_most(
                f"spark: {size} values, {codec}: count and bytes from headers, against Parquet's count", "spark", 3.0
            ),
        )
    ),
    *(
        row
        for size in ("100 B", "1 KiB")
        for row in (
            _at_least(
                f"spark: {size} values, lz4: latest value of each key, against Spark SQL over the JVM connector",
                "spark",
                8.0,
            ),
            _at_least(
                f"spark: {size} values, lz4: export to Parquet, against Spark SQL over the JVM connector", "spark", 3.0
            ),
        )
    ),
    _at_least("spark: 100 B values, lz4: sustained stream from files, against the JVM connector", "spark", 2.0),
    _at_most("spark: small trigger over a broker: latency, in times the JVM connector's", "spark", 1.2),
    _at_least("spark: from an object store, 8 tasks, against ready batches", "spark", 0.85),
    _percent("spark: from an object store, 8 tasks: of what obstore alone downloads", "spark", 70),
    _percent("tables: 1 KiB values, lz4: all columns on one core, of the codec alone", "tables", 60),
    _percent("tables: 100 B values, zstd: all columns on one core, of the codec alone", "tables", 60),
    _percent("tables: 100 B values, none: all columns on one core, of reading and checksums alone", "tables", 60),
    _not_below("tables: offsets and timestamps: skipped", "tables", 3000),
    _at_least("tables: into pandas, against confluent-kafka, dicts and pandas", "tables", 20),
    _percent("tables: from an object store, two cores: all columns, of what obstore alone downloads", "tables", 60),
    _percent(
        "tables: from an object store of 20 ms and 100 MB/s a connection: all columns, of what obstore alone downloads",
        "tables",
        80,
    ),
    _within("lake: 10 MB/s followed: longest time until a record is in the table", "lake", 60),
    _percent("backup: rate, of cp and sync", "backup", 70),
    _within("backup: a second one with 1 % new: bytes, of the first's", "backup", 2),
    _within("erase 1,000 keys: time, times that of the cleaner", "erasure", 1.2),
    _within("produce while records are erased: p99, times that of idle", "erasure", 1.5),
    _within("live: first row", "live", 0.3),
    _within("live: all rows, in times the table alone and the topic alone", "live", 1.1),
    _within("spark: planning 1,000,000 tiered segments", "spark_planning", 30),
    _within("spark: planning 1,000,000 tiered segments: memory", "spark_planning", 1500),
    _within("spark: planning 100,000 segments", "spark_planning", 10),
    _within("spark: planning 100,000 segments: memory", "spark_planning", 500),
    _within("start with 1,000 partitions after a clean stop: exec to first acknowledged produce", "partitions", 1.5),
    _within("start with 1,000 partitions after kill -9: exec to first acknowledged produce", "partitions", 1.5),
    _within("controller, 100,000 partitions: snapshot loaded", "controller_scale", 3),
    _within("controller, 100,000 partitions: a broker fenced, its leaders elected", "controller_scale", 1),
    _within("controller, 1,000,000 partitions: snapshot loaded, in times 100,000", "controller_scale", 12),
    _within(
        "controller, 1,000,000 partitions: a broker fenced, its leaders elected, in times 100,000",
        "controller_scale",
        12,
    ),
    _within("recovery of ten active 1 GiB segments, 16 KiB batches", "recovery", 10),
    _at_most("recovery of ten active 1 GiB segments, 169-byte batches", "recovery", 2.0),
    _at_most("start after kill -9 with 285 partitions, 204 MiB of transactions not flushed", "restart", 1.0),
    _at_most("start after kill -9 with 1,000 partitions, 204 MiB of transactions not flushed", "restart", 1.0),
    _at_most("a million offset records loaded", "offset_loading", 2.5),
    _within("p99 of other requests while offsets load", "offset_loading", 50),
    _at_least("transactions of 100 records, 3 partitions, one producer: rate", "transactions", 1.2, 2.0),
    _at_most("transactions of 100 records, 3 partitions, one producer: p99 of a commit", "transactions", 0.8, 0.5),
    _at_least("transactions of 100 records, 3 partitions, ten producers: rate", "transactions", 1.2, 2.0),
    _at_most("transactions of 100 records, 3 partitions, ten producers: p99 of a commit", "transactions", 0.8, 0.5),
    _at_most(
        "transactions of 100 records, 3 partitions, ten producers at 300/s: p50 of a commit", "transactions", 1.0, 0.6
    ),
    _at_most(
        "transactions of 100 records, 3 partitions, ten producers at 300/s: p99 of a commit", "transactions", 0.8, 0.5
    ),
    _at_least("consume-transform-produce, 100 records, one producer: rate", "transactions", 1.2),
    _at_least("consume-transform-produce, 100 records, ten producers: rate", "transactions", 1.2),
    _at_least("fetch 1 MiB of transactions, 10 % aborted, 4 connections: rate of read_committed", "transactions", 1.0),
    _not_below(
        "fetch 1 MiB of transactions, 10 % aborted, 4 connections: read_committed in times read_uncommitted",
        "transactions",
        0.95,
    ),
    _at_least(
        "three nodes, transactions of 100 records, 3 partitions, one producer: rate", "cluster_transactions", 1.2, 2.0
    ),
    _at_most(
        "three nodes, transactions of 100 records, 3 partitions, one producer: p99 of a commit",
        "cluster_transactions",
        0.8,
        0.5,
    ),
    _at_least(
        "three nodes, transactions of 100 records, 3 partitions, ten producers: rate", "cluster_transactions", 1.2, 2.0
    ),
    _at_most(
        "three nodes, transactions of 100 records, 3 partitions, ten producers: p99 of a commit",
        "cluster_transactions",
        0.8,
        0.5,
    ),
    _at_least("three nodes, consume-transform-produce, 100 records, one producer: rate", "cluster_transactions", 1.2),
    _at_least("three nodes, consume-transform-produce, 100 records, ten producers: rate", "cluster_transactions", 1.2),
    _within("100,000 transactional ids loaded", "transaction_loading", 5),
    _within("p99 of other requests while transactional ids load", "transaction_loading", 50),
    _at_least("log cleaner, 1 KiB values, lz4: rate", "compaction", 1.0, 2.0),
    _within("log cleaner, 1 KiB values, lz4: memory of the worker above an idle one", "compaction", 198),
    _at_least("log cleaner, 100-byte values, no codec: rate", "compaction", 1.0, 2.0),
    _within("log cleaner, 100-byte values, no codec: memory of the worker above an idle one", "compaction", 198),
    _at_least("log cleaner, 10 M keys, 100-byte values: rate", "compaction", 1.0, 2.0),
    _within("log cleaner, 10 M keys, 100-byte values: memory of the worker above an idle one", "compaction", 198),
    _at_least("log cleaner, keys at random, 100-byte values, lz4: rate", "compaction", 1.0, 2.0),
    _within("produce 200 B while logs are cleaned: p99, times that of idle", "compaction_latency", 1.5),
    _at_most("produce 200 B while logs are cleaned: p99", "compaction_latency", 1.0),
    _within("fetch 64 KiB while logs are cleaned: p99, times that of idle", "compaction_latency", 1.5),
    _at_most("fetch 64 KiB while logs are cleaned: p99", "compaction_latency", 1.0),
    _within("__consumer_offsets after 5 million commits by 1,000 groups: bytes on disk", "compacted_offsets", 20),
    _within("5 million commits by 1,000 groups, compacted: loaded", "compacted_offsets", 1),
    _percent("cold sequential read, fetches of 1 MiB: of what obstore alone downloads", "cold_read", 80),
    _percent("cold sequential read, fetches of 8 MiB: of what obstore alone downloads", "cold_read", 80),
    _percent("copy to remote storage: of what obstore alone uploads", "cold_read", 80),
    *(
        row
        for suite in ("TLS 1.3", "TLS 1.2")
        for row in (
            _at_least(f"{suite}, produce 16 KiB, acks=all, 4 x 5: rate", "tls", 1.0),
            _at_least(f"{suite}, produce 256 KiB, 4 x 5: rate", "tls", 1.0),
            _at_least(f"{suite}, fetch 1 MiB from page cache, 4 connections: rate", "tls", 0.9),
            _at_least(f"{suite}, produce 200 B, 4 connections x 5 in flight: rate", "tls", 1.5),
        )
    ),
    _within("1,000 TLS handshakes at once: p99 of produces meanwhile, times that without", "tls", 3.0),
    _at_most("1,000 TLS handshakes at once: until all clients are served", "tls", 1.0),
    _within("authorizer with 10,000 ACLs, produce 200 B: user + system CPU, times that without", "tls", 1.1),
    *(_at_most(long_lists_row(user), "long_lists", 2.0) for user in LONG_LIST_USERS),
    *(
        _at_most(f"{group} is stable: after {what}", "group_members", 1.0, 0.5)
        for group in ("a consumer group of 100 members", "a classic group of 100 members, cooperative,")
        for what in ("all join", "one leaves", "100 partitions more")
    ),
    _at_most("heartbeats of 10,000 members of 1,000 consumer groups: CPU", "group_members", 0.5),
    _within(
        "heartbeats of 10,000 members of 1,000 consumer groups: produce p99 beside, times that without",
        "group_members",
        1.5,
    ),
    _at_least("share group, 4 consumers of one partition, 1 KiB: rate", "share_groups", 1.2),
    _at_most("share group, acknowledgements of 10 records, one in flight: median", "share_groups", 0.8),
    _at_most("share group, acknowledgements of 10 records, one in flight: p99", "share_groups", 0.8),
    _at_most("10,000 groups with 1,000,000 offsets loaded", "group_loading", 2.0),
    _within("p99 of other requests while groups load", "group_loading", 50),
    _within("10,000 idle connections: memory of each", "idle_connections", 20),
    _within("10,000 idle connections: p99 of the busy ones, times that without", "idle_connections", 1.5),
)
